//! What DataFusion's planner is taught: each rule leaves the answers as they are and makes them come sooner.
//!
//! ```text
//! rule                 of what                    what it does
//! dictionary_groups    the query                  groups by the number of a text instead of by the text
//! interval_join        the plan, before joins     sweeps where intervals are compared
//! eager_boolean          the plan, last             asks both sides of AND and OR of every row, if that is cheap
//! dense_group_by         the plan, last             finds groups of numbers near each other by their place in a table
//! ```

mod dense_group_by;
mod dictionary_groups;
mod eager_boolean;
pub mod interval_join;
mod substitute_exec;

use std::sync::Arc;

use datafusion::{
    execution::memory_pool::MemoryPool, optimizer::OptimizerRule, physical_optimizer::PhysicalOptimizerRule,
};

use crate::planner::substitute_exec::Rule;

/// Rules for queries, to be added to DataFusion's; what they keep is accounted for in `pool`.
pub fn query_rules(pool: &Arc<dyn MemoryPool>) -> Vec<Arc<dyn OptimizerRule + Send + Sync>> {
    vec![Arc::new(dictionary_groups::DictionaryGroups::new(Arc::clone(pool)))]
}

/// Rules for plans, DataFusion's among them.
pub fn plan_rules() -> Vec<Arc<dyn PhysicalOptimizerRule + Send + Sync>> {
    let mut rules = interval_join::rules();
    rules.push(Arc::new(Rule::<eager_boolean::CheapConditions>::default()));
    rules.push(Arc::new(Rule::<dense_group_by::NearGroups>::default()));
    rules
}
