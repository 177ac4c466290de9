// Containers that grow. A comment at the end of a line is the name of what its calls allocate.
#include <cstdio>
#include <deque>
#include <list>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

struct Shape {
  virtual double area() const = 0;
  virtual ~Shape() {}
};
struct Circle : Shape {
  double r;
  Circle(double r) : r(r) {}
  double area() const override { return r * r; }
};
struct Rect : Shape {
  double a, b;
  Rect(double a, double b) : a(a), b(b) {}
  double area() const override { return a * b; }
};
struct Sparse {
  std::vector<int> rows, columns;
  std::vector<double> values;
};

struct Entry {
  long weight;
};
struct Counts {
  std::vector<int> column;
  std::unordered_map<int, long> hits;
  std::map<int, Entry> entries;
  __attribute__((noinline)) void count(int k) {
    hits[k]++;            // Counts::hits
    entries[k].weight++;  // Counts::entries
    column.push_back(k);  // Counts::column
  }
  void count_inlined(int k) {
    hits[k]--; // Counts::hits
  }
};

static std::map<int, long> of_all;

static unsigned long state = 88172645463325252ul;
static inline unsigned long next() { return state = state * 6364136223846793005ul + 1; }

__attribute__((noinline)) static int counted(int n) {
  std::unique_ptr<int[]> scratch(new int[n]); // scratch
  asm volatile("" : : "r"(scratch.get()) : "memory");
  scratch[n - 1] = n;
  return scratch[n - 1];
}

int main() {
  int n = 1000;
  Sparse a;
  for (int i = 0; i < n; i++)
    a.columns.push_back(i % n); // a.columns
  for (int i = 0; i < n; i++) {
    double v = i;
    a.values.push_back(v); // a.values
  }
  a.rows.reserve(n); // a.rows
  std::vector<std::string> names;
  for (int i = 0; i < n; i++)
    names.emplace_back("a long string that is not stored inline"); // names
  std::vector<std::vector<int>> table(100); // table
  for (auto &row : table)
    row.assign(500, n); // row
  std::vector<int> copy = a.columns; // copy
  std::string text;
  for (int i = 0; i < n; i++)
    text += char('a' + i % 26); // text
  std::vector<std::unique_ptr<Shape>> shapes;
  for (int i = 0; i < n; i++) {
    if (next() & 1)
      shapes.emplace_back(new Circle(i)); // shapes
    else
      shapes.push_back(std::make_unique<Rect>(i, i)); // shapes
  }
  std::unordered_map<long, long> hashed;
  for (int j = 0; j < n; j++)
    hashed[next() % 1000] = j; // hashed
  std::map<long, long> ordered;
  for (int k = 0; k < n; k++)
    ordered[next() % 1000] = k; // ordered
  std::list<int> chain;
  for (int l = 0; l < n; l++)
    chain.push_back(l); // chain
  std::deque<int> queue; // queue
  for (int m = 0; m < n; m++)
    queue.push_back(m); // queue
  std::set<long> uniq;
  for (int o = 0; o < n; o++)
    uniq.insert(next() % 1000); // uniq
  Counts counts;
  std::unordered_map<int, long> hits;
  std::map<std::string, Entry> words;
  long so_far = 0;
  for (int k = 0; k < n; k++) {
    counts.count(k);
    counts.count_inlined(3 * k);
    counts.hits[k + n]++;           // counts.hits
    counts.entries[k + n].weight--; // counts.entries
    hits[k % 1000]++;               // hits
    ++hits[(k + 7) % 2000];         // hits
    so_far += hits[k % 3000];       // hits
    std::string word = "word";
    words[word].weight += so_far;   // words
    of_all[k % 1000] += 2;          // of_all
    of_all.emplace(k, k);           // of_all
  }
  int sum = words.size() + of_all.size();
  for (int i = 0; i < 3; i++)
    sum += counted(n); //
  sum = counted(n); //
  double s = sum;
  for (auto &shape : shapes)
    s += shape->area();
  printf("%f %zu %zu %zu %zu\n", s, hashed.size() + ordered.size() + chain.size(), copy.size() + text.size(),
         names.size() + queue.size(), uniq.size() + a.rows.size());
}
