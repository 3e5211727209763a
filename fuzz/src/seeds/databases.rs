//! SQLite databases as other tools write them, with pages that are small, so that there are many.

use std::fs;

use rusqlite::Connection;

use crate::scratch;

fn database(sql: &str) -> Vec<u8> {
    let file = scratch::absent("seed.db");
    let connection = Connection::open(&file).expect("a database");
    connection.execute_batch(&format!("PRAGMA page_size = 512; {sql}")).expect("tables");
    connection.close().map_err(|(_, error)| error).expect("a closed database");
    fs::read(&file).expect("the database")
}

/// Returns a database of ingero: calls, switches, counts of what was not stored, a session.
pub fn ingero() -> Vec<Vec<u8>> {
    vec![database(
        "CREATE TABLE events (id INTEGER PRIMARY KEY, timestamp INTEGER, pid INTEGER, tid INTEGER, source INTEGER,
             op INTEGER, duration INTEGER, gpu_id INTEGER, arg0 INTEGER, arg1 INTEGER, ret_code INTEGER);
         CREATE TABLE ops (source_id INTEGER, op_id INTEGER, name TEXT);
         INSERT INTO ops VALUES (1, 1, 'cudaMalloc'), (1, 2, 'cudaFree'), (1, 3, 'cudaMemcpy'), (3, 1, 'sched_switch');
         WITH RECURSIVE n (i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i < 39)
         INSERT INTO events SELECT i, 1700000000000000000 + i * 1000000, 100, 101, 1, 1 + i % 3, 10000, 0, 4096, 1, 0 FROM n;
         INSERT INTO events VALUES (40, 1700000000050000000, 101, 101, 3, 1, 1000000, 0, 0, 0, 0);
         CREATE TABLE event_aggregates (bucket INTEGER, source INTEGER, op INTEGER, pid INTEGER, count INTEGER,
             stored INTEGER, max_dur INTEGER);
         INSERT INTO event_aggregates VALUES (1699999980000000000, 1, 1, 100, 500, 14, 10000), (1699999980000000000, 3, 1, 101, 9, 1, 1000000);
         CREATE TABLE sessions (started_at INTEGER, stopped_at INTEGER, kernel TEXT, gpu_model TEXT, gpu_driver TEXT,
             cpu_cores INTEGER, ingero_ver TEXT, flags TEXT, pid_filter TEXT);
         INSERT INTO sessions VALUES (1700000000000000000, 1700000000900000000, '6.8', 'H200', '570', 8, '0.8', '--pid 100', '100');
         CREATE TABLE process_names (pid INTEGER, name TEXT);
         INSERT INTO process_names VALUES (100, 'python3');",
    )]
}

/// Returns an export of Nsight Systems: calls, kernels, copies, ranges, switches.
pub fn nsys() -> Vec<Vec<u8>> {
    let thread = |tid: i64| (1_i64 << 56) | (4242 << 24) | tid;
    let (main, other, process) = (thread(4242), thread(4243), thread(0));
    vec![database(&format!(
        "CREATE TABLE StringIds (id INTEGER NOT NULL PRIMARY KEY, value TEXT NOT NULL);
         INSERT INTO StringIds VALUES (1, 'cudaLaunchKernel_v7000'), (2, 'cudaMemcpyAsync_ptsz_v7000'), (3, 'add(float*)'),
             (4, 'poll'), (5, 'step 1'), (6, 'trainer');
         CREATE TABLE TARGET_INFO_SESSION_START_TIME (utcEpochNs INTEGER);
         INSERT INTO TARGET_INFO_SESSION_START_TIME VALUES (1700000000000000000);
         CREATE TABLE TARGET_INFO_GPU (id INTEGER, name TEXT);
         INSERT INTO TARGET_INFO_GPU VALUES (0, 'NVIDIA H200');
         CREATE TABLE ThreadNames (nameId INTEGER, priority INTEGER, globalTid INTEGER);
         INSERT INTO ThreadNames VALUES (6, 0, {main});
         CREATE TABLE CUPTI_ACTIVITY_KIND_RUNTIME (start INTEGER, end INTEGER, globalTid INTEGER, correlationId INTEGER,
             nameId INTEGER, returnValue INTEGER);
         INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME VALUES (200, 260, {main}, 12, 2, 0), (100, 150, {main}, 11, 1, 719);
         CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start INTEGER, end INTEGER, deviceId INTEGER, streamId INTEGER,
             correlationId INTEGER, globalPid INTEGER, demangledName INTEGER, shortName INTEGER, gridX INTEGER);
         INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (160, 190, 0, 7, 11, {process}, 3, 3, 64);
         CREATE TABLE CUPTI_ACTIVITY_KIND_MEMCPY (start INTEGER, end INTEGER, deviceId INTEGER, streamId INTEGER,
             correlationId INTEGER, globalPid INTEGER, bytes INTEGER, copyKind INTEGER);
         INSERT INTO CUPTI_ACTIVITY_KIND_MEMCPY VALUES (270, 290, 0, 7, 12, {process}, 5000000000, 2);
         CREATE TABLE OSRT_API (start INTEGER, end INTEGER, globalTid INTEGER, nameId INTEGER);
         INSERT INTO OSRT_API VALUES (10, 20, {other}, 4);
         CREATE TABLE NVTX_EVENTS (start INTEGER, end INTEGER, eventType INTEGER, text TEXT, textId INTEGER, globalTid INTEGER);
         INSERT INTO NVTX_EVENTS VALUES (90, 300, 59, NULL, 5, {main}), (95, NULL, 34, 'here', NULL, {main});
         CREATE TABLE SCHED_EVENTS (start INTEGER, cpu INTEGER, isSchedIn INTEGER, globalTid INTEGER);
         INSERT INTO SCHED_EVENTS VALUES (5, 3, 1, {main}), (110, 3, 0, {main}), (130, 2, 1, {main}), (400, 2, 0, {main}),
             (15, 1, 0, {other}), (18, 1, 1, {other});"
    ))]
}
