//! Optimizer rules that are added to DataFusion's. Each rule keeps the results of a query and makes it
//! faster.
//!
//! ```text
//! rule                 runs on                        what it does
//! dictionary_groups    the logical plan               groups by the number of a string, not by the string
//! shared_quantiles     the logical plan               holds values once of which several quantiles are asked
//! interval_join        the physical plan, early       sweeps sorted inputs where a join compares intervals
//! eager_boolean        the physical plan, last        evaluates both sides of AND and OR if that is cheap
//! dense_group_by       the physical plan, last        finds the group of an integer by its place in a table
//! checked_scans        the physical plan, last        checks the rows of files (it makes nothing faster)
//! ```

mod dense_group_by;
mod dictionary_groups;
mod eager_boolean;
pub mod interval_join;
mod shared_quantiles;
mod substitute_exec;

use std::sync::Arc;

use datafusion::{
    execution::memory_pool::MemoryPool, optimizer::OptimizerRule, physical_optimizer::PhysicalOptimizerRule,
};

use crate::{checked_scan::CheckedScans, planner::substitute_exec::Rule};

/// Returns the rules for logical plans, which are added to DataFusion's. Their memory is accounted for in
/// `pool`.
pub fn query_rules(pool: &Arc<dyn MemoryPool>) -> Vec<Arc<dyn OptimizerRule + Send + Sync>> {
    vec![
        Arc::new(dictionary_groups::DictionaryGroups::new(Arc::clone(pool))),
        Arc::new(shared_quantiles::SharedQuantiles),
    ]
}

/// Returns the rules for physical plans, including DataFusion's own.
pub fn plan_rules() -> Vec<Arc<dyn PhysicalOptimizerRule + Send + Sync>> {
    let mut rules = interval_join::rules();
    rules.push(Arc::new(Rule::<eager_boolean::EagerBooleanFilter>::default()));
    rules.push(Arc::new(Rule::<dense_group_by::DenseGroupBy>::default()));
    rules.push(Arc::new(CheckedScans));
    rules
}
