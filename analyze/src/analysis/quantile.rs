//! Quantiles in Rust, by the definition of SQL's `percentile_cont`: exact, linear between neighbours.

/// The value below which a share `q` of the values lies; `NaN` of none. Reorders them.
pub(crate) fn quantile(values: &mut [f64], q: f64) -> f64 {
    if values.is_empty() {
        return f64::NAN;
    }
    let place = q.clamp(0.0, 1.0) * (values.len() - 1) as f64;
    let below = place.floor() as usize;
    let (_, low, above) = values.select_nth_unstable_by(below, f64::total_cmp);
    let low = *low;
    match above.iter().copied().min_by(f64::total_cmp) {
        Some(high) if place > below as f64 => low + (high - low) * (place - below as f64),
        _ => low,
    }
}

/// Median of `count` values, of which all but `others` are zero; none is below zero.
pub(crate) fn median_with_zeros(others: &mut [f64], count: usize) -> f64 {
    if count == 0 || others.len() * 2 + 1 < count {
        return 0.0;
    }
    let mut values = vec![0.0; count.saturating_sub(others.len())];
    values.extend_from_slice(others);
    quantile(&mut values, 0.5)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{columns::floats, trace::Trace};

    #[tokio::test]
    async fn is_what_sql_says() {
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
            // It interpolates in steps of a millionth.
            let found = quantile(&mut values.to_vec(), q);
            assert!((found - expected).abs() < 1e-4, "{q}: {found}, not {expected}");
        }
        assert!(quantile(&mut [], 0.5).is_nan());
    }

    #[test]
    fn zeros_need_not_be_stored() {
        assert_eq!(median_with_zeros(&mut [7.0], 5), 0.0);
        assert_eq!(median_with_zeros(&mut [7.0, 9.0, 8.0], 5), 7.0);
        assert_eq!(median_with_zeros(&mut [4.0, 2.0], 4), 1.0);
        assert_eq!(median_with_zeros(&mut [], 0), 0.0);
    }
}
