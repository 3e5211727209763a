//! Hash maps and sets for lookups that are made for a large share of the rows: with the standard hasher,
//! hashing would take longer than the work on the value. The hasher is seeded anew in each process, so that
//! no file can make its keys collide.

use foldhash::fast::RandomState;

/// A hash map with the `foldhash` hasher, seeded per process.
pub type HashMap<K, V> = std::collections::HashMap<K, V, RandomState>;
/// A hash set with the `foldhash` hasher, seeded per process.
pub type HashSet<K> = std::collections::HashSet<K, RandomState>;
