//! Combines two listeners into one: each of them receives everything that the replay reports.

use super::{
    allocator::Allocator,
    event::Event,
    input::{IpcCollect, Key, Listener, Replay},
    span::{Block, Segment},
};
use analyze_run::error::AnalyzeError;

impl<A: Listener, B: Listener> Listener for (A, B) {
    const WANTS_POOLS: bool = A::WANTS_POOLS || B::WANTS_POOLS;

    fn run(&mut self, run: u32, name: &str) {
        self.0.run(run, name);
        self.1.run(run, name);
    }

    fn began(&mut self, key: Key, allocator: &Allocator, ts: i64) {
        self.0.began(key, allocator, ts);
        self.1.began(key, allocator, ts);
    }

    fn before(&mut self, key: Key, allocator: &Allocator, event: &Event) {
        self.0.before(key, allocator, event);
        self.1.before(key, allocator, event);
    }

    fn after(&mut self, key: Key, allocator: &Allocator, event: &Event) {
        self.0.after(key, allocator, event);
        self.1.after(key, allocator, event);
    }

    fn empty_cache(&mut self, run: u32, pid: u32, tid: u32, ts: i64, replay: &Replay) {
        self.0.empty_cache(run, pid, tid, ts, replay);
        self.1.empty_cache(run, pid, tid, ts, replay);
    }

    fn ipc_collect(&mut self, run: u32, pid: u32, call: &IpcCollect, is_whole: bool, replay: &Replay) {
        self.0.ipc_collect(run, pid, call, is_whole, replay);
        self.1.ipc_collect(run, pid, call, is_whole, replay);
    }

    fn handle_closed(&mut self, run: u32, pid: u32, tid: u32, ts: i64, addr: u64, is_driver: bool) {
        self.0.handle_closed(run, pid, tid, ts, addr, is_driver);
        self.1.handle_closed(run, pid, tid, ts, addr, is_driver);
    }

    fn refused(&mut self, run: u32, pid: u32, tid: u32) {
        self.0.refused(run, pid, tid);
        self.1.refused(run, pid, tid);
    }

    fn instant(&mut self, run: u32, number: usize, replay: &Replay) {
        self.0.instant(run, number, replay);
        self.1.instant(run, number, replay);
    }

    fn block(&mut self, key: Key, block: &Block, segment: Option<&Segment>, end: Option<i64>) {
        self.0.block(key, block, segment, end);
        self.1.block(key, block, segment, end);
    }

    fn segment(&mut self, key: Key, segment: &Segment, end: Option<i64>) {
        self.0.segment(key, segment, end);
        self.1.segment(key, segment, end);
    }

    fn end(&mut self) {
        self.0.end();
        self.1.end();
    }

    fn flush(&mut self, replay: &Replay, all: bool) -> Result<(), AnalyzeError> {
        self.0.flush(replay, all)?;
        self.1.flush(replay, all)
    }
}
