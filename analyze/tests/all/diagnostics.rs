//! What the engine says about queries that are wrong: the place, and what was perhaps meant.

use analyze::trace::Trace;

/// The error of a query.
async fn error_of(query: &str) -> String {
    let trace = Trace::literal().await.expect("a trace");
    trace.sql(query).await.err().map_or_else(|| panic!("{query} is right"), |error| error.to_string())
}

#[tokio::test]
async fn errors_point_at_the_place_and_suggest() {
    assert_eq!(
        error_of("SELECT op\nFROM opps o").await,
        "there is no table or view opps; perhaps ops, copies; `analyze queries` lists them\n  line 2:  FROM opps o\n                ^^^^"
    );
    let column = error_of("SELECT\n\to.durr, 1 FROM ops o").await;
    assert!(column.starts_with("there is no column o.durr; perhaps dur\n  line 2:  \to.durr, 1"), "{column}");
    assert!(column.ends_with("\n           \t^^^^^^"), "{column}");
    assert!(error_of("SELECT preempted_ns FROM ops").await.contains("; it is one of op_time"));
    let none = error_of("SELECT zzzzzzzz FROM marks").await;
    assert!(none.contains("there is no column zzzzzzzz; there are run, name, op, ts, dur"), "{none}");
    let function = error_of("SELECT percentile_count(dur) FROM ops").await;
    assert!(
        function.starts_with("there is no function percentile_count; perhaps percentile_cont,"),
        "{function}"
    );
    assert!(function.contains("^^^^"), "{function}");
    assert_eq!(
        error_of("SELEC 1").await,
        "Expected: an SQL statement, found: SELEC\n  line 1:  SELEC 1\n           ^^^^^"
    );
    assert_eq!(
        error_of("SELECT op FROM ops WHERE\n").await,
        "Expected: an expression, found: the end of the query\n  line 1:  SELECT op FROM ops WHERE\n                                   ^"
    );
    let open = error_of("SELECT 'é', 'abc").await;
    assert!(open.contains("Unterminated string literal\n  line 1:  SELECT 'é', 'abc\n"), "{open}");
    assert!(
        error_of("SELECT op FROM ops WHERE op = cudaMalloc")
            .await
            .contains("text is written in 'single quotes'")
    );
    assert_eq!(
        error_of("SELECT 1,\n fmt_ns (op) FROM ops").await,
        "fmt_ns takes one number\n  line 2:   fmt_ns (op) FROM ops\n            ^^^^^^"
    );
    assert!(
        error_of("SELECT time_bucket(1, op) FROM ops").await.ends_with("\n                  ^^^^^^^^^^^")
    );
    let long = error_of(&format!("SELECT {} opp FROM ops", "1, ".repeat(500))).await;
    assert!(long.lines().all(|line| line.chars().count() < 200) && long.ends_with("^^^"), "{long}");
    assert!(error_of("INSERT INTO events (run) VALUES ('r')").await.contains("not supported"));
}
