//! Several quantiles of the same values from one accumulator, which is that of `percentile_cont`. The planner rule
//! `shared_quantiles` makes queries of these two functions; a query cannot name them.

use std::sync::Arc;

use arrow::{
    array::AsArray,
    datatypes::{DataType, FieldRef},
};
use datafusion::{
    common::exec_err,
    error::Result,
    logical_expr::{
        Accumulator, AggregateUDF, AggregateUDFImpl, ColumnarValue, GroupsAccumulator, ScalarFunctionArgs,
        ScalarUDF, ScalarUDFImpl, Signature, Volatility,
        function::{AccumulatorArgs, StateFieldsArgs},
        utils::AggregateOrderSensitivity,
    },
};

use super::percentile_cont::{Wanted, grouped, quantile_fields, state_fields_of, ungrouped};

/// The aggregate: a struct of one quantile a share.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Quantiles {
    name: String,
    /// The bits of the shares, from 0 to 1.
    shares: Vec<u64>,
    signature: Signature,
}

/// Returns the aggregate that computes the quantiles of some shares, from 0 to 1.
pub(crate) fn aggregate(shares: &[f64]) -> AggregateUDF {
    AggregateUDF::from(Quantiles {
        name: format!("_quantiles{shares:?}"),
        shares: shares.iter().map(|share| share.to_bits()).collect(),
        signature: Signature::exact(vec![DataType::Float64], Volatility::Immutable),
    })
}

impl Quantiles {
    fn wanted(&self) -> Wanted {
        Wanted::Quantiles(self.shares.iter().map(|bits| f64::from_bits(*bits)).collect())
    }

    fn answer_type(&self) -> DataType {
        DataType::Struct(quantile_fields(self.shares.len()))
    }
}

impl AggregateUDFImpl for Quantiles {
    fn name(&self) -> &str {
        &self.name
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(self.answer_type())
    }

    fn state_fields(&self, args: StateFieldsArgs) -> Result<Vec<FieldRef>> {
        Ok(state_fields_of(args.name))
    }

    fn accumulator(&self, _: AccumulatorArgs) -> Result<Box<dyn Accumulator>> {
        Ok(ungrouped(self.wanted()))
    }

    fn groups_accumulator_supported(&self, _: AccumulatorArgs) -> bool {
        true
    }

    fn create_groups_accumulator(&self, _: AccumulatorArgs) -> Result<Box<dyn GroupsAccumulator>> {
        Ok(grouped(self.wanted()))
    }

    fn order_sensitivity(&self) -> AggregateOrderSensitivity {
        AggregateOrderSensitivity::Insensitive
    }
}

/// The scalar function that takes one quantile out of the struct.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Quantile {
    place: usize,
    signature: Signature,
}

/// Returns the function that takes the quantile at a place out of the struct of so many quantiles.
pub(crate) fn quantile_at(place: usize, count: usize) -> ScalarUDF {
    let quantiles = DataType::Struct(quantile_fields(count));
    ScalarUDF::from(Quantile { place, signature: Signature::exact(vec![quantiles], Volatility::Immutable) })
}

impl ScalarUDFImpl for Quantile {
    fn name(&self) -> &str {
        "_quantile"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(DataType::Float64)
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let quantiles = ColumnarValue::values_to_arrays(&args.args)?;
        let column = quantiles
            .first()
            .and_then(|all| all.as_struct_opt())
            .and_then(|all| all.columns().get(self.place));
        match column {
            Some(column) => Ok(ColumnarValue::Array(Arc::clone(column))),
            None => exec_err!("no quantile at place {}", self.place),
        }
    }
}
