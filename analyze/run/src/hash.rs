//! Maps for what is looked up for many of the rows: with the standard hasher that takes longer than what is done with the
//! value. Seeded anew by each process, too, so that no file can make its keys collide.

use foldhash::fast::RandomState;

pub type HashMap<K, V> = std::collections::HashMap<K, V, RandomState>;
pub type HashSet<K> = std::collections::HashSet<K, RandomState>;
