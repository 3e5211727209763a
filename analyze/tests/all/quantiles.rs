//! Quantiles of counted values are those of SQL.

use analyze::trace::Trace;
use analyze_run::{
    columns::floats,
    multiset::{counted, quantiles},
};

#[tokio::test]
async fn quantiles_are_what_sql_says() {
    let values = [5.0, 1.0, 9.5, 3.25, 3.25, 100.0, 0.0];
    let trace = Trace::literal().await.expect("trace");
    let rows: Vec<String> = values.iter().map(|value| format!("({value:?})")).collect();
    for q in [0.0, 0.1, 0.5, 0.9, 0.99, 0.999, 1.0] {
        let query = format!(
            "SELECT percentile_cont({q}) WITHIN GROUP (ORDER BY column1) AS q FROM (VALUES {})",
            rows.join(", ")
        );
        let batches = trace.batches(&query).await.expect("query");
        let expected = floats(&batches[0], "q").expect("column").value(0);
        let found = quantiles(&counted(values.to_vec()), &Vec::new(), &Vec::new(), [q])[0];
        // It interpolates in steps of a millionth.
        assert!((found - expected).abs() < 1e-4, "{q}: {found}, not {expected}");
    }
}
