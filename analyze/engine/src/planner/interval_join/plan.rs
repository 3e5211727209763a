//! The optimizer rule for interval joins: it finds, among the conditions of an inner join, two which say that
//! the interval of one side overlaps that of the other, and plans an [`IntervalJoinExec`] in place of
//! DataFusion's own join.
//!
//! ```text
//! left          ├──── a ────┤            left start  < right end
//! right                ├────── b ──────┤ right start < left end
//! ```
//!
//! A *start* is an expression that must not be greater than one of the other side, and an *end* is one that
//! must not be less. A point is an interval whose start is its end, so `a.ts >= b.ts AND a.ts < b.ts + b.dur`
//! is an interval join too. If more than two conditions have this shape, those are used whose start and end
//! share columns; the others are evaluated on the pairs. The expressions are DataFusion's own, so they
//! overflow as they always do. The one difference is that an expression which fails does so even if its row
//! has no partner.
//!
//! Outer, semi and anti joins stay as DataFusion plans them, and so do joins with equality keys for which
//! order and equality might disagree (floating point, nested types).

use std::{collections::HashSet, sync::Arc};

use arrow::datatypes::{DataType, Schema};
use datafusion::{
    common::{
        JoinSide, JoinType, NullEquality,
        config::ConfigOptions,
        tree_node::{Transformed, TreeNode},
    },
    error::Result,
    logical_expr::Operator,
    physical_expr::{
        PhysicalExprRef, PhysicalSortExpr, conjunction_opt, split_conjunction, utils::collect_columns,
    },
    physical_expr_common::physical_expr::is_volatile,
    physical_optimizer::{PhysicalOptimizerRule, optimizer::PhysicalOptimizer},
    physical_plan::{
        ExecutionPlan, ExecutionPlanProperties,
        expressions::{BinaryExpr, Column},
        joins::{
            HashJoinExec, JoinOn, NestedLoopJoinExec, SortMergeJoinExec,
            utils::{ColumnIndex, JoinFilter},
        },
    },
};

use super::{
    exec::{ASCENDING, IntervalJoinExec},
    interval::Interval,
    ordinal::has_ordinals,
};

/// The number of partitions up to which inputs that are sorted by start are swept by one thread: distributing
/// and sorting them takes several times as long in total.
const FEW_PARTITIONS: usize = 8;

type Rule = Arc<dyn PhysicalOptimizerRule + Send + Sync>;

/// Returns DataFusion's physical optimizer rules with the rule for interval joins among them. It runs before
/// the rule that chooses the sides of joins, and so before those that distribute and sort the inputs.
pub fn rules() -> Vec<Rule> {
    let mut rules = PhysicalOptimizer::new().rules;
    let at = rules.iter().position(|rule| rule.name() == "join_selection").unwrap_or_default();
    rules.insert(at, Arc::new(IntervalJoins));
    rules
}

/// The optimizer rule.
#[derive(Debug)]
struct IntervalJoins;

impl PhysicalOptimizerRule for IntervalJoins {
    fn optimize(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        config: &ConfigOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let is_few = config.execution.target_partitions <= FEW_PARTITIONS;
        let rewrite = |plan: Arc<dyn ExecutionPlan>| {
            Ok(match Join::of(plan.as_ref()).map(|join| join.plan(is_few)).transpose()?.flatten() {
                Some(join) => Transformed::yes(Arc::new(join) as Arc<dyn ExecutionPlan>),
                None => Transformed::no(plan),
            })
        };
        Ok(plan.transform_up(rewrite)?.data)
    }

    fn name(&self) -> &str {
        "interval_join"
    }

    fn schema_check(&self) -> bool {
        true
    }
}

/// The parts that DataFusion's three join operators have in common.
struct Join<'a> {
    left: &'a Arc<dyn ExecutionPlan>,
    right: &'a Arc<dyn ExecutionPlan>,
    on: JoinOn,
    filter: &'a JoinFilter,
    projection: Option<Vec<usize>>,
}

/// A condition `lesser <= greater` or `lesser < greater`. The two expressions belong to different sides and
/// refer to the columns of their side.
struct Comparison {
    lesser: PhysicalExprRef,
    greater: PhysicalExprRef,
    is_strict: bool,
    lesser_side: JoinSide,
    data_type: DataType,
}

impl<'a> Join<'a> {
    /// Returns the parts of an inner join that has conditions other than equality, and `None` for any other
    /// node.
    fn of(plan: &'a dyn ExecutionPlan) -> Option<Self> {
        let plain = |null_equality, join_type: &JoinType| {
            *join_type == JoinType::Inner && null_equality == NullEquality::NullEqualsNothing
        };
        if plan.fetch().is_some() || !plan.dynamic_expressions_produced().is_empty() {
            return None;
        }
        if let Some(join) = plan.downcast_ref::<HashJoinExec>() {
            let is_taken = plain(join.null_equality(), join.join_type());
            let projection = join.projection.as_deref().map(<[usize]>::to_vec);
            let (left, right, on) = (join.left(), join.right(), join.on().to_vec());
            return is_taken.then_some(Self { left, right, on, filter: join.filter()?, projection });
        }
        if let Some(join) = plan.downcast_ref::<SortMergeJoinExec>() {
            let is_taken = plain(join.null_equality(), &join.join_type());
            let (left, right, on) = (join.left(), join.right(), join.on().to_vec());
            return is_taken.then_some(Self {
                left,
                right,
                on,
                filter: join.filter().as_ref()?,
                projection: None,
            });
        }
        let join = plan.downcast_ref::<NestedLoopJoinExec>()?;
        let projection = join.projection().as_deref().map(<[usize]>::to_vec);
        let (left, right, filter) = (join.left(), join.right(), join.filter()?);
        (*join.join_type() == JoinType::Inner).then_some(Self {
            left,
            right,
            on: Vec::new(),
            filter,
            projection,
        })
    }

    /// Plans the join as an interval join, or returns `None` if it is not one.
    fn plan(self, is_few: bool) -> Result<Option<IntervalJoinExec>> {
        for (left, right) in &self.on {
            let types = (left.data_type(&self.left.schema())?, right.data_type(&self.right.schema())?);
            if types.0 != types.1 || !is_key(&types.0) {
                return Ok(None);
            }
        }
        let conditions = split_conjunction(self.filter.expression());
        let comparisons =
            conditions.iter().map(|one| self.comparison(one)).collect::<Result<Vec<Option<Comparison>>>>()?;
        let mut best: Option<(usize, usize, usize)> = None;
        for (first, a) in comparisons.iter().enumerate() {
            for (second, b) in comparisons.iter().enumerate() {
                let (Some(a), Some(b)) = (a, b) else { continue };
                let is_pair = a.lesser_side == JoinSide::Left
                    && b.lesser_side == JoinSide::Right
                    && a.data_type == b.data_type;
                let shared = usize::from(share_columns(&a.lesser, &b.greater))
                    + usize::from(share_columns(&b.lesser, &a.greater));
                if is_pair && best.is_none_or(|(most, ..)| shared > most) {
                    best = Some((shared, first, second));
                }
            }
        }
        let Some((_, first, second)) = best else { return Ok(None) };
        let (Some(left_first), Some(right_first)) = (&comparisons[first], &comparisons[second]) else {
            return Ok(None);
        };
        let left = Interval {
            start: Arc::clone(&left_first.lesser),
            end: Arc::clone(&right_first.greater),
            is_open: right_first.is_strict,
        };
        let right = Interval {
            start: Arc::clone(&right_first.lesser),
            end: Arc::clone(&left_first.greater),
            is_open: left_first.is_strict,
        };
        let rest = conditions.iter().enumerate().filter(|(at, _)| *at != first && *at != second);
        let rest = conjunction_opt(rest.map(|(_, condition)| Arc::clone(condition)));
        let filter = rest.map(|rest| narrowed(rest, self.filter)).transpose()?;
        let inputs = [Arc::clone(self.left), Arc::clone(self.right)];
        let is_by_start = is_few
            && !self.on.is_empty()
            && is_sorted(&inputs[0], &left.start)?
            && is_sorted(&inputs[1], &right.start)?;
        IntervalJoinExec::try_new(inputs, self.on, [left, right], filter, self.projection, is_by_start)
            .map(Some)
    }

    /// Converts a condition to a comparison of one side with the other, or returns `None` if it is not one.
    fn comparison(&self, condition: &PhysicalExprRef) -> Result<Option<Comparison>> {
        let Some(binary) = condition.downcast_ref::<BinaryExpr>() else { return Ok(None) };
        let (lesser, greater, is_strict) = match binary.op() {
            Operator::Lt => (binary.left(), binary.right(), true),
            Operator::LtEq => (binary.left(), binary.right(), false),
            Operator::Gt => (binary.right(), binary.left(), true),
            Operator::GtEq => (binary.right(), binary.left(), false),
            _ => return Ok(None),
        };
        let (Some(lesser_side), Some(greater_side)) = (self.side(lesser), self.side(greater)) else {
            return Ok(None);
        };
        let data_type = lesser.data_type(self.filter.schema())?;
        let is_taken = lesser_side != greater_side
            && data_type == greater.data_type(self.filter.schema())?
            && has_ordinals(&data_type)
            && !is_volatile(condition);
        if !is_taken {
            return Ok(None);
        }
        let (lesser, greater) = (self.of_side(lesser)?, self.of_side(greater)?);
        Ok(Some(Comparison { lesser, greater, is_strict, lesser_side, data_type }))
    }

    /// Returns the side that all columns of an expression belong to, if there is one.
    fn side(&self, expression: &PhysicalExprRef) -> Option<JoinSide> {
        let indices = self.filter.column_indices();
        let mut sides =
            collect_columns(expression).into_iter().map(|column| indices.get(column.index()).map(|i| i.side));
        let first = sides.next()??;
        (first != JoinSide::None && sides.all(|side| side == Some(first))).then_some(first)
    }

    /// Converts an expression over the filter's columns to one over the columns of its side.
    fn of_side(&self, expression: &PhysicalExprRef) -> Result<PhysicalExprRef> {
        let indices = self.filter.column_indices();
        renumbered(Arc::clone(expression), |index| indices[index].index)
    }
}

/// Returns whether an input is already sorted by `start`.
fn is_sorted(input: &Arc<dyn ExecutionPlan>, start: &PhysicalExprRef) -> Result<bool> {
    let order = PhysicalSortExpr { expr: Arc::clone(start), options: ASCENDING };
    input.equivalence_properties().ordering_satisfy([order])
}

/// Returns whether two values of a type are equal exactly if neither sorts before the other.
fn is_key(data_type: &DataType) -> bool {
    use DataType::*;
    data_type.is_integer()
        || data_type.is_temporal()
        || matches!(
            data_type,
            Boolean | Utf8 | LargeUtf8 | Utf8View | Binary | LargeBinary | BinaryView | Decimal128(..)
        )
}

fn share_columns(a: &PhysicalExprRef, b: &PhysicalExprRef) -> bool {
    !collect_columns(a).is_disjoint(&collect_columns(b))
}

/// Returns the expression with its column indices replaced by `number`.
fn renumbered(expression: PhysicalExprRef, number: impl Fn(usize) -> usize) -> Result<PhysicalExprRef> {
    let renumber = |expression: PhysicalExprRef| {
        Ok(match expression.downcast_ref::<Column>() {
            Some(column) => {
                let column = Column::new(column.name(), number(column.index()));
                Transformed::yes(Arc::new(column) as PhysicalExprRef)
            }
            None => Transformed::no(expression),
        })
    };
    Ok(expression.transform_up(renumber)?.data)
}

/// Returns a filter for `expression` that has only the columns which it uses.
fn narrowed(expression: PhysicalExprRef, filter: &JoinFilter) -> Result<JoinFilter> {
    let used: HashSet<usize> = collect_columns(&expression).iter().map(Column::index).collect();
    let used: Vec<usize> = (0..filter.column_indices().len()).filter(|index| used.contains(index)).collect();
    let indices: Vec<ColumnIndex> =
        used.iter().map(|index| filter.column_indices()[*index].clone()).collect();
    let fields: Vec<_> = used.iter().map(|index| Arc::clone(&filter.schema().fields()[*index])).collect();
    let expression =
        renumbered(expression, |index| used.iter().position(|one| *one == index).unwrap_or_default())?;
    Ok(JoinFilter::new(expression, indices, Arc::new(Schema::new(fields))))
}
