"""One append-only database of trials: SQLite file or PostgreSQL, the same tables and the same code.

store = open_store(None)            # the user's own file; or a path, or a URL
store.add(record)                   # durable on return
store.records(RecordQuery(study="sgemm on a6000"))
"""

from autotune.store.hosts import Host, StoreWarning
from autotune.store.merge import MergeReport
from autotune.store.query import RecordQuery
from autotune.store.store import Store, StoreInfo, open_store

__all__ = ["Host", "MergeReport", "RecordQuery", "Store", "StoreInfo", "StoreWarning", "open_store"]
