//! `demangle`: converts C++ and Rust symbols to the names in their source.

use std::sync::Arc;

use arrow::{
    array::{AsArray, StringArray},
    datatypes::DataType,
};
use datafusion::{
    error::Result,
    logical_expr::{
        ColumnarValue, Documentation, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
    },
};

use super::document::{VALUES, document};
use analyze_run::symbols;

#[derive(Debug, PartialEq, Eq, Hash)]
struct Demangle {
    signature: Signature,
    documentation: Documentation,
}

fn documentation() -> Documentation {
    document(
        VALUES,
        "C++ and Rust symbols as their source has them, without parameters. Of a call stack, frames separated by `;`, each is; what is no such symbol stays as it is.",
        "demangle(text)",
        "SELECT demangle('main;_ZN2at6detail10empty_cudaEv') AS a",
        &[("text", "A symbol, or the frames of a stack, as in the view `stacks`.")],
    )
}

pub(super) fn function() -> ScalarUDF {
    let signature = Signature::exact(vec![DataType::Utf8], Volatility::Immutable);
    ScalarUDF::from(Demangle { signature, documentation: documentation() })
}

impl ScalarUDFImpl for Demangle {
    fn name(&self) -> &str {
        "demangle"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(DataType::Utf8)
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let symbols = ColumnarValue::values_to_arrays(&args.args)?.remove(0);
        let named = |frames: &str| frames.split(';').map(symbols::demangle).collect::<Vec<_>>().join(";");
        let names: StringArray = symbols.as_string::<i32>().iter().map(|symbol| symbol.map(named)).collect();
        Ok(ColumnarValue::Array(Arc::new(names)))
    }

    fn documentation(&self) -> Option<&Documentation> {
        Some(&self.documentation)
    }
}
