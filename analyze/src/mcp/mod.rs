//! A server of the Model Context Protocol: the questions of this program as tools for agents, over stdio or HTTP.
//!
//! ```text
//! client ─► stdio, http ─► server ─► tools ─► questions, compare ─► answer (ids of evidence, what is open, a budget)
//!                            └─► resources, prompts: ids resolved, and how to investigate
//! ```
//! The protocol runs on a thread of its own, so that a request can be cancelled while all other threads compute.

pub mod answer;
pub mod budget;
pub mod finding;
pub mod http;
pub mod id;
pub mod library;
pub mod next;
pub mod prompts;
pub mod resolve;
pub mod resources;
pub mod roots;
pub mod runs;
pub mod server;
pub mod stdio;
pub mod tools;
