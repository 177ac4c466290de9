"""Runs programs side by side."""

from concurrent.futures import ThreadPoolExecutor


def side_by_side(work, items, jobs, tell, interrupted=lambda: None):
    """Calls `work` with each item, `jobs` at a time, and `tell` with item and result, in the order of the items. When `tell` or a
    signal raises, what waits is dropped and `interrupted` called, which may end what runs."""
    with ThreadPoolExecutor(max_workers=jobs) as pool:
        results = [pool.submit(work, item) for item in items]
        try:
            for item, result in zip(items, results):
                tell(item, result.result())
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            interrupted()
            raise
