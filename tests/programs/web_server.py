"""A web server with a thread a request: `web_server.py FILE` writes its port to FILE. `/N` answers with the sum of the
first 100 N squares; `/end` ends it, and it says how many it answered."""

import os
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

answered = 0
lock = threading.Lock()


class Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        global answered
        if self.path == "/end":
            self.answer("ends")
            threading.Thread(target=server.shutdown).start()
            return
        self.answer(str(sum(i * i for i in range(int(self.path[1:]) * 100))))
        with lock:
            answered += 1

    def answer(self, text):
        self.send_response(200)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text.encode())

    def log_message(self, *_):
        pass


server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
server.daemon_threads = False
with open(sys.argv[1] + ".new", "w") as file:
    file.write(str(server.server_port))
os.rename(sys.argv[1] + ".new", sys.argv[1])
server.serve_forever()
server.server_close()
print(f"{answered} answered")
