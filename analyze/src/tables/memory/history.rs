//! Tables of the history of PyTorch's allocator: the free memory of each pool after every event, why segments
//! were allocated and released, what each release returned to the driver, and every failed request.

use super::*;
use analyze_memory::{
    history::{Change, History, Oom, Release, pool_of},
    pools::PoolKey,
};

table!(Pools {
    run: Text, text();
    pid: UInt32Builder, DataType::UInt32;
    device: Int32Builder, DataType::Int32;
    ts: Int64Builder, DataType::Int64;
    pool_owner: UInt64Builder, DataType::UInt64;
    pool_id: UInt64Builder, DataType::UInt64;
    stream: UInt64Builder, DataType::UInt64;
    is_small: BooleanBuilder, DataType::Boolean;
    reserved_bytes: Int64Builder, DataType::Int64;
    active_bytes: Int64Builder, DataType::Int64;
    rounding_bytes: Int64Builder, DataType::Int64;
    free_bytes: Int64Builder, DataType::Int64;
    free_count: Int64Builder, DataType::Int64;
    largest_free_bytes: Int64Builder, DataType::Int64;
    pinned_bytes: Int64Builder, DataType::Int64;
    external_ratio: Float64Builder, DataType::Float64;
    concentration_ratio: Float64Builder, DataType::Float64;
});

table!(Requests {
    run: Text, text();
    pid: UInt32Builder, DataType::UInt32;
    device: Int32Builder, DataType::Int32;
    ts: Int64Builder, DataType::Int64;
    tid: UInt32Builder, DataType::UInt32;
    action: Text, text();
    cause: Text, text();
    addr: UInt64Builder, DataType::UInt64;
    size_bytes: Int64Builder, DataType::Int64;
    pool_owner: UInt64Builder, DataType::UInt64;
    pool_id: UInt64Builder, DataType::UInt64;
    stream: UInt64Builder, DataType::UInt64;
    is_small: BooleanBuilder, DataType::Boolean;
    requested_bytes: Int64Builder, DataType::Int64;
    block_bytes: Int64Builder, DataType::Int64;
    pool_reserved_bytes: Int64Builder, DataType::Int64;
    pool_peak_bytes: Int64Builder, DataType::Int64;
    pool_free_bytes: Int64Builder, DataType::Int64;
    largest_free_bytes: Int64Builder, DataType::Int64;
    other_stream_bytes: Int64Builder, DataType::Int64;
    stack: UInt32Builder, DataType::UInt32;
});

table!(Releases {
    run: Text, text();
    pid: UInt32Builder, DataType::UInt32;
    device: Int32Builder, DataType::Int32;
    ts: Int64Builder, DataType::Int64;
    dur: Int64Builder, DataType::Int64;
    tid: UInt32Builder, DataType::UInt32;
    cause: Text, text();
    before_bytes: Int64Builder, DataType::Int64;
    given_back_bytes: Int64Builder, DataType::Int64;
    segments_count: Int64Builder, DataType::Int64;
    after_bytes: Int64Builder, DataType::Int64;
    in_use_bytes: Int64Builder, DataType::Int64;
    pinned_bytes: Int64Builder, DataType::Int64;
    private_bytes: Int64Builder, DataType::Int64;
    releasable_bytes: Int64Builder, DataType::Int64;
    unknown_bytes: Int64Builder, DataType::Int64;
});

table!(Ooms {
    run: Text, text();
    pid: UInt32Builder, DataType::UInt32;
    device: Int32Builder, DataType::Int32;
    ts: Int64Builder, DataType::Int64;
    tid: UInt32Builder, DataType::UInt32;
    requested_bytes: Int64Builder, DataType::Int64;
    block_bytes: Int64Builder, DataType::Int64;
    segment_bytes: Int64Builder, DataType::Int64;
    device_free_bytes: Int64Builder, DataType::Int64;
    is_limited: BooleanBuilder, DataType::Boolean;
    stream: UInt64Builder, DataType::UInt64;
    reserved_bytes: Int64Builder, DataType::Int64;
    allocated_bytes: Int64Builder, DataType::Int64;
    pending_bytes: Int64Builder, DataType::Int64;
    pinned_bytes: Int64Builder, DataType::Int64;
    private_bytes: Int64Builder, DataType::Int64;
    pool_free_bytes: Int64Builder, DataType::Int64;
    largest_free_bytes: Int64Builder, DataType::Int64;
    other_stream_bytes: Int64Builder, DataType::Int64;
    is_expandable: BooleanBuilder, DataType::Boolean;
    expandable_helps: BooleanBuilder, DataType::Boolean;
    hole_addr: UInt64Builder, DataType::UInt64;
    hole_bytes: Int64Builder, DataType::Int64;
    hole_in_use_bytes: Int64Builder, DataType::Int64;
    hole_in_use_count: Int64Builder, DataType::Int64;
    segments_count: Int64Builder, DataType::Int64;
    segments_in_use_bytes: Int64Builder, DataType::Int64;
    segments_in_use_count: Int64Builder, DataType::Int64;
});

impl Listener for Filler<Pools> {
    const WANTS_POOLS: bool = true;

    fn after(&mut self, key: Key, allocator: &Allocator, event: &Event) {
        // Memory that is still in use, even if only by another stream, is not free yet.
        if matches!(event.action, Action::FreeRequested | Action::Oom) {
            return;
        }
        let of = pool_of(allocator, event);
        let Some(pool) = allocator.pools().and_then(|pools| pools.get(&of)) else { return };
        self.runs.push(key.run);
        let columns = &mut self.columns;
        columns.pid.append_value(key.pid);
        columns.device.append_value(key.device);
        columns.ts.append_value(event.ts);
        columns.pool_owner.append_option(non_zero(of.pool.0));
        columns.pool_id.append_option(non_zero(of.pool.1));
        columns.stream.append_option(non_zero(of.stream));
        columns.is_small.append_value(of.is_small);
        columns.reserved_bytes.append_value(pool.reserved_bytes as i64);
        columns.active_bytes.append_value(pool.active_bytes as i64);
        columns.rounding_bytes.append_value(pool.rounding_bytes as i64);
        columns.free_bytes.append_value(pool.free_bytes as i64);
        columns.free_count.append_value(pool.free_count() as i64);
        columns.largest_free_bytes.append_value(pool.largest_free_bytes() as i64);
        columns.pinned_bytes.append_value(pool.free_bytes.saturating_sub(pool.releasable_bytes) as i64);
        columns.external_ratio.append_option(pool.external_ratio());
        columns.concentration_ratio.append_option(pool.concentration_ratio());
    }

    fn flush(&mut self, replay: &Replay, all: bool) -> Result<(), AnalyzeError> {
        self.send(replay, all)
    }
}

/// Column builders whose rows come from a `History`.
pub(super) trait Rows: Columns {
    /// The entry of the story that one row describes.
    type Row;
    /// Takes the entries so far.
    fn told(story: &mut History) -> std::vec::Drain<'_, Self::Row>;
    /// Adds a row for an entry, and returns the number of its run.
    fn add(&mut self, row: &Self::Row) -> u32;
}

/// A story, and the rows that are made of one kind of its entries.
pub(super) struct Told<B> {
    story: History,
    filler: Filler<B>,
}

impl<B: Rows> Listener for Told<B> {
    const WANTS_POOLS: bool = true;

    fn before(&mut self, key: Key, allocator: &Allocator, event: &Event) {
        self.story.before(key, allocator, event);
    }

    fn after(&mut self, key: Key, allocator: &Allocator, event: &Event) {
        self.story.after(key, allocator, event);
    }

    fn empty_cache(&mut self, run: u32, pid: u32, tid: u32, ts: i64, replay: &Replay) {
        self.story.empty_cache(run, pid, tid, ts, replay);
    }

    fn end(&mut self) {
        self.story.end();
    }

    fn flush(&mut self, replay: &Replay, all: bool) -> Result<(), AnalyzeError> {
        for row in B::told(&mut self.story) {
            let run = self.filler.columns.add(&row);
            self.filler.runs.push(run);
        }
        // Entries of other kinds belong to other tables.
        self.story.forget();
        self.filler.send(replay, all)
    }
}

impl<B: Rows> Sink for Told<B> {
    fn schema() -> SchemaRef {
        B::schema()
    }

    fn new(output: Output) -> Self {
        let filler = Filler { columns: B::default(), runs: Vec::new(), began: HashMap::new(), output };
        Self { story: History::default(), filler }
    }
}

fn pool(of: &PoolKey, owner: &mut UInt64Builder, id: &mut UInt64Builder, stream: &mut UInt64Builder) {
    owner.append_option(non_zero(of.pool.0));
    id.append_option(non_zero(of.pool.1));
    stream.append_option(non_zero(of.stream));
}

impl Rows for Requests {
    type Row = Change;

    fn told(story: &mut History) -> std::vec::Drain<'_, Change> {
        story.changes.drain(..)
    }

    fn add(&mut self, row: &Change) -> u32 {
        self.pid.append_value(row.key.pid);
        self.device.append_value(row.key.device);
        self.ts.append_value(row.ts);
        self.tid.append_value(row.tid);
        self.action.append_value(row.action.name());
        self.cause.append_value(row.cause.name());
        self.addr.append_value(row.addr);
        self.size_bytes.append_value(row.size_bytes as i64);
        pool(&row.pool, &mut self.pool_owner, &mut self.pool_id, &mut self.stream);
        self.is_small.append_value(row.pool.is_small);
        let request = row.request.as_ref();
        self.requested_bytes.append_option(request.map(|request| request.requested_bytes as i64));
        self.block_bytes.append_option(request.map(|request| request.block_bytes as i64));
        self.pool_reserved_bytes.append_value(row.before.reserved_bytes as i64);
        self.pool_peak_bytes.append_value(row.before.peak_bytes as i64);
        self.pool_free_bytes.append_value(row.before.free_bytes as i64);
        self.largest_free_bytes.append_value(row.before.largest_free_bytes as i64);
        self.other_stream_bytes.append_value(row.before.other_stream_bytes as i64);
        self.stack.append_option(request.and_then(|request| request.stack));
        row.key.run
    }
}

impl Rows for Releases {
    type Row = Release;

    fn told(story: &mut History) -> std::vec::Drain<'_, Release> {
        story.releases.drain(..)
    }

    fn add(&mut self, row: &Release) -> u32 {
        let after = &row.after;
        self.pid.append_value(row.key.pid);
        self.device.append_value(row.key.device);
        self.ts.append_value(row.ts);
        self.dur.append_value(row.last_ts.saturating_sub(row.ts));
        self.tid.append_value(row.tid);
        self.cause.append_value(row.cause.name());
        self.before_bytes.append_value(row.before.reserved_bytes);
        self.given_back_bytes.append_value(row.given_back_bytes as i64);
        self.segments_count.append_value(row.segments_count as i64);
        self.after_bytes.append_value(after.reserved_bytes);
        self.in_use_bytes.append_value(row.in_use_bytes());
        self.pinned_bytes.append_value(row.pinned_bytes as i64);
        self.private_bytes.append_value(after.private_releasable_bytes);
        self.releasable_bytes.append_value(after.releasable_bytes);
        self.unknown_bytes.append_value(after.unknown_bytes);
        row.key.run
    }
}

impl Rows for Ooms {
    type Row = Oom;

    fn told(story: &mut History) -> std::vec::Drain<'_, Oom> {
        story.ooms.drain(..)
    }

    fn add(&mut self, row: &Oom) -> u32 {
        let totals = &row.totals;
        self.pid.append_value(row.key.pid);
        self.device.append_value(row.key.device);
        self.ts.append_value(row.ts);
        self.tid.append_value(row.tid);
        self.requested_bytes.append_value(row.requested_bytes as i64);
        self.block_bytes.append_value(row.block_bytes as i64);
        self.segment_bytes.append_value(row.segment_bytes as i64);
        self.device_free_bytes.append_value(row.device_free_bytes as i64);
        self.is_limited.append_value(row.is_limited());
        self.stream.append_option(non_zero(row.pool.stream));
        self.reserved_bytes.append_value(totals.reserved_bytes);
        self.allocated_bytes.append_value(totals.allocated_bytes);
        self.pending_bytes.append_value(totals.active_bytes - totals.allocated_bytes);
        self.pinned_bytes.append_value(row.pinned_bytes as i64);
        self.private_bytes.append_value(totals.private_releasable_bytes);
        self.pool_free_bytes.append_value(row.before.free_bytes as i64);
        self.largest_free_bytes.append_value(row.before.largest_free_bytes as i64);
        self.other_stream_bytes.append_value(row.before.other_stream_bytes as i64);
        self.is_expandable.append_value(row.is_expandable);
        self.expandable_helps.append_option(row.expandable_helps);
        self.hole_addr.append_option(row.hole.map(|hole| hole.addr));
        self.hole_bytes.append_option(row.hole.map(|hole| hole.size_bytes as i64));
        self.hole_in_use_bytes.append_option(row.hole.map(|hole| hole.in_use_bytes as i64));
        self.hole_in_use_count.append_option(row.hole.map(|hole| hole.in_use_count as i64));
        self.segments_count.append_option(row.segments.map(|of| of.segments_count as i64));
        self.segments_in_use_bytes.append_option(row.segments.map(|of| of.in_use_bytes as i64));
        self.segments_in_use_count.append_option(row.segments.map(|of| of.in_use_count as i64));
        row.key.run
    }
}

/// The table `_memory_pools`.
pub const POOLS: TableDef = table::<Filler<Pools>>("_memory_pools", &[Kind::Alloc]);
/// The table `_memory_requests`.
pub const REQUESTS: TableDef = table::<Told<Requests>>("_memory_requests", &[Kind::Alloc]);
/// The table `_memory_releases`.
pub const RELEASES: TableDef = table::<Told<Releases>>("_memory_releases", &[Kind::Alloc]);
/// The table `_memory_ooms`.
pub const OOMS: TableDef = table::<Told<Ooms>>("_memory_ooms", &[Kind::Alloc]);
