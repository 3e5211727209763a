//! The server on standard input and output, one JSON-RPC message a line, for a client that starts it.

use std::thread;

use rmcp::{
    serve_server,
    service::ServerInitializeError,
    transport::{async_rw::AsyncRwTransport, stdio},
};
use tokio::{runtime::Builder, sync::oneshot};

use super::server::Server;
use analyze_run::{error::AnalyzeError, text::harmless};

/// The largest number of bytes of a message; a longer one is dropped without being held in memory.
pub const MOST_LINE_BYTES: usize = 4 << 20;

/// Serves one client until it closes standard input.
///
/// # Errors
/// Returns an error if the client does not speak the protocol.
pub async fn serve(server: Server) -> Result<(), AnalyzeError> {
    let (read, write) = stdio();
    let transport = AsyncRwTransport::new_server(read, write).with_max_line_length(MOST_LINE_BYTES);
    match serve_server(server, transport).await {
        Ok(running) => {
            running.waiting().await.map_err(|error| AnalyzeError::Internal(error.to_string()))?;
            Ok(())
        }
        // A client that never said anything.
        Err(ServerInitializeError::ConnectionClosed(_)) => Ok(()),
        Err(error) => {
            /// The largest number of characters of a client's message that an error quotes.
            const QUOTED: usize = 200;
            let said: String = harmless(&error.to_string()).chars().take(QUOTED).collect();
            Err(AnalyzeError::Query(format!("the client does not speak the Model Context Protocol: {said}")))
        }
    }
}

/// Runs a server on a thread of its own, which reads requests however busy all other threads are.
///
/// # Errors
/// Returns the error of the server, or one that says that it has no thread.
pub async fn apart(
    served: impl Future<Output = Result<(), AnalyzeError>> + Send + 'static,
) -> Result<(), AnalyzeError> {
    let internal = |error: &dyn std::fmt::Display| AnalyzeError::Internal(error.to_string());
    let runtime = Builder::new_current_thread().enable_all().build().map_err(|error| internal(&error))?;
    let (done, is_done) = oneshot::channel();
    thread::spawn(move || {
        let result = runtime.block_on(served);
        // A read of standard input that has begun cannot be ended.
        runtime.shutdown_background();
        let _ = done.send(result);
    });
    is_done.await.unwrap_or_else(|_| Err(internal(&"the server ended without a result")))
}
