//! The server over streamable HTTP on the loopback interface, for clients that do not start it.
//!
//! Every request has to carry the token, and a Host header that names the loopback interface: a page in a browser could reach
//! the address by another name. A request with an Origin comes from a page, and is refused.

use std::{convert::Infallible, net::SocketAddr, path::Path, sync::Arc, time::Duration};

use http_body_util::{BodyExt, Full, combinators::BoxBody};
use hyper::{
    Request, Response, StatusCode,
    body::{Bytes, Incoming},
    header::{AUTHORIZATION, HeaderMap, HeaderValue, WWW_AUTHENTICATE},
    server::conn::http1,
    service::service_fn,
};
use hyper_util::rt::{TokioIo, TokioTimer};
use rmcp::transport::streamable_http_server::{
    StreamableHttpServerConfig, StreamableHttpService, session::local::LocalSessionManager,
};
use tokio::{net::TcpListener, sync::Semaphore};

use super::{server::Server, stdio::MOST_LINE_BYTES};
use analyze_run::{error::AnalyzeError, progress, text_file};

/// The environment variable that has the token, unless a file has it.
pub const TOKEN_VARIABLE: &str = "INQUEST_MCP_TOKEN";
/// The least number of characters of a token.
const LEAST_TOKEN: usize = 16;
/// The number of connections that are served at once; others wait.
const MOST_CONNECTIONS: usize = 32;
/// The time until the next connection is accepted after one could not be.
const PAUSE: Duration = Duration::from_millis(100);
/// What an Authorization header begins with.
const SCHEME: &[u8] = b"Bearer ";

/// The secret that every request has to carry.
pub struct Token(Vec<u8>);

impl Token {
    /// Reads the token from a file, or from the environment. White space around it does not count.
    ///
    /// # Errors
    /// Returns an error if there is none, or if it is so short that it could be guessed.
    pub fn read(file: Option<&Path>) -> Result<Self, AnalyzeError> {
        let text = match file {
            Some(file) => text_file::read(file)?,
            None => std::env::var(TOKEN_VARIABLE).map_err(|_| {
                AnalyzeError::Query(format!(
                    "--http needs a token: give --token-file FILE or the environment variable {TOKEN_VARIABLE}; `head -c 32 /dev/urandom | base64` makes one"
                ))
            })?,
        };
        let token = text.trim();
        if token.len() < LEAST_TOKEN || !token.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err(AnalyzeError::Query(format!(
                "the token must have at least {LEAST_TOKEN} characters, all of them printable ASCII without spaces"
            )));
        }
        Ok(Self(token.as_bytes().to_vec()))
    }

    /// Returns whether a request carries the token.
    fn is_in(&self, headers: &HeaderMap) -> bool {
        let value = headers.get(AUTHORIZATION).map(HeaderValue::as_bytes).unwrap_or_default();
        let Some((scheme, given)) = value.split_at_checked(SCHEME.len()) else { return false };
        // All bytes are compared, so that the time does not tell how many are right.
        let differing =
            given.iter().zip(&self.0).fold(0, |differing, (one, other)| differing | (one ^ other));
        scheme.eq_ignore_ascii_case(SCHEME) && given.len() == self.0.len() && differing == 0
    }
}

/// Returns the answer to a request without the token.
fn refused() -> Response<BoxBody<Bytes, Infallible>> {
    let body =
        Full::new(Bytes::from_static(b"Unauthorized: send the token as Authorization: Bearer TOKEN")).boxed();
    let mut response = Response::new(body);
    *response.status_mut() = StatusCode::UNAUTHORIZED;
    response.headers_mut().insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
    response
}

/// Serves clients until the program is ended.
///
/// # Errors
/// Returns an error if the address is not of the loopback interface, or cannot be bound.
pub async fn serve(server: Server, address: SocketAddr, token: Token) -> Result<(), AnalyzeError> {
    if !address.ip().is_loopback() {
        return Err(AnalyzeError::Query(format!(
            "{address} is not of the loopback interface: --http takes 127.0.0.1:PORT or [::1]:PORT"
        )));
    }
    let io = |source| AnalyzeError::Io { path: address.to_string().into(), source };
    let listener = TcpListener::bind(address).await.map_err(io)?;
    let bound = listener.local_addr().map_err(io)?;
    progress::say(&format!("analyze: serves MCP at http://{bound}/"));
    let config = StreamableHttpServerConfig::default()
        .enforce_origin_validation()
        .with_max_request_body_bytes(MOST_LINE_BYTES);
    let sessions = Arc::new(LocalSessionManager::default());
    let service = StreamableHttpService::new(move || Ok(server.clone()), sessions, config);
    let (token, connections) = (Arc::new(token), Arc::new(Semaphore::new(MOST_CONNECTIONS)));
    loop {
        let permit = Arc::clone(&connections).acquire_owned().await;
        let Ok((stream, _)) = listener.accept().await else {
            tokio::time::sleep(PAUSE).await;
            continue;
        };
        let (service, token) = (service.clone(), Arc::clone(&token));
        tokio::spawn(async move {
            let _permit = permit;
            let answer = service_fn(move |request: Request<Incoming>| {
                let (service, token) = (service.clone(), Arc::clone(&token));
                async move {
                    let is_allowed = token.is_in(request.headers());
                    Ok::<_, Infallible>(if is_allowed { service.handle(request).await } else { refused() })
                }
            });
            let mut connection = http1::Builder::new();
            connection.timer(TokioTimer::new());
            // A client that closes its connection early is no error.
            let _ = connection.serve_connection(TokioIo::new(stream), answer).await;
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_whole_token_is_accepted() {
        let token = Token(b"0123456789abcdef".to_vec());
        let is_in = |value: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(AUTHORIZATION, HeaderValue::from_str(value).expect("a header"));
            token.is_in(&headers)
        };
        assert!(is_in("Bearer 0123456789abcdef") && is_in("bearer 0123456789abcdef"));
        for wrong in [
            "",
            "Bearer",
            "Bearer ",
            "Bearer 0123456789abcde",
            "Bearer 0123456789abcdeF",
            "Bearer 0123456789abcdef0",
            "Basic  0123456789abcdef",
            "0123456789abcdef",
        ] {
            assert!(!is_in(wrong), "{wrong}");
        }
        assert!(!token.is_in(&HeaderMap::new()));
    }
}
