//! Optimizer rules that are added to DataFusion's. Each rule keeps the results of a query and makes it
//! faster.
//!
//! ```text
//! rule                 runs on                        what it does
//! dictionary_groups    the logical plan               groups by the number of a string, not by the string
//! interval_join        the physical plan, early       sweeps sorted inputs where a join compares intervals
//! both_sides           the physical plan, last        evaluates both sides of AND and OR if that is cheap
//! near_groups          the physical plan, last        finds the group of an integer by its place in a table
//! ```

mod both_sides;
mod dictionary_groups;
mod near_groups;
mod stand_in;

use std::sync::Arc;

use datafusion::{
    execution::memory_pool::MemoryPool, optimizer::OptimizerRule, physical_optimizer::PhysicalOptimizerRule,
};

use self::stand_in::Rule;
use crate::functions::interval_join;

/// Returns the rules for logical plans, which are added to DataFusion's. Their memory is accounted for in
/// `pool`.
pub fn query_rules(pool: &Arc<dyn MemoryPool>) -> Vec<Arc<dyn OptimizerRule + Send + Sync>> {
    vec![Arc::new(dictionary_groups::DictionaryGroups::new(Arc::clone(pool)))]
}

/// Returns the rules for physical plans, including DataFusion's own.
pub fn plan_rules() -> Vec<Arc<dyn PhysicalOptimizerRule + Send + Sync>> {
    let mut rules = interval_join::rules();
    rules.push(Arc::new(Rule::<both_sides::CheapConditions>::default()));
    rules.push(Arc::new(Rule::<near_groups::NearGroups>::default()));
    rules
}
