//! Requests and their handlers.

use std::sync::{Arc, PoisonError};
use std::time::Duration;

use axum::extract::rejection::{JsonRejection, QueryRejection};
use axum::extract::{DefaultBodyLimit, Query, Request, State};
use axum::http::{StatusCode, header};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use linerate_pipeline::PortId;

use super::ErrorBody;
use super::sample::Rates;
use super::server::App;
use super::views;
use crate::dataplane::{Dataplane, Refused};
use crate::show::acls::AclQuery;
use crate::show::multicast::MulticastQuery;
use crate::show::routes::{MAX_PAGE, RouteQuery};
use crate::show::{self, MoveQueue, QueueMoved, TraceRequest};

/// Most bytes of a request's body.
const MAX_BODY: usize = 64 << 10;
/// How long a request may take, its body included.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(15);
/// Most packets traced at a time, per worker.
const MAX_TRACE: u32 = 100;
/// Longest wait for packets to trace.
const MAX_TRACE_WAIT: u64 = 5000;

/// What there is, for those who ask for something else.
const PATHS: &str = "/v1/ and status, ports, workers, queues, interfaces, neighbors, conflicts, acls, acl-log, router, drops, \
                     graph, fib, vrfs, routes, linux, punt, \
                     multicast/routes, queues/move or trace";

type Shared = State<Arc<App>>;

pub(super) fn router(app: Arc<App>) -> Router {
    Router::new()
        .route("/v1/status", get(status))
        .route("/v1/ports", get(async |s: Shared| view(s, views::ports)))
        .route("/v1/workers", get(async |s: Shared| view(s, views::workers)))
        .route("/v1/queues", get(async |s: Shared| view(s, views::queues)))
        .route("/v1/drops", get(async |s: Shared| view(s, views::drops)))
        .route("/v1/graph", get(async |s: Shared| Json(views::graph(s.plane.as_ref()))))
        .route("/v1/router", get(async |s: Shared| Json(views::router(s.plane.as_ref()))))
        .route("/v1/interfaces", get(interfaces))
        .route("/v1/neighbors", get(neighbors))
        .route(
            "/v1/conflicts",
            get(async |s: Shared| Json(show::Conflicts { conflicts: s.plane.conflicts() })),
        )
        .route("/v1/acls", get(acls))
        .route("/v1/acl-log", get(async |s: Shared| Json(show::AclLog { samples: s.plane.acl_log() })))
        .route("/v1/linux", get(async |s: Shared| Json(s.plane.linux())))
        .route("/v1/punt", get(async |s: Shared| Json(s.plane.punt())))
        .route("/v1/multicast/routes", get(multicast_routes))
        .route("/v1/fib", get(async |s: Shared| Json(show::Fibs { fibs: s.plane.fibs() })))
        .route("/v1/vrfs", get(async |s: Shared| Json(show::Vrfs { vrfs: s.plane.vrfs() })))
        .route("/v1/routes", get(routes))
        .route("/v1/queues/move", post(move_queue))
        .route("/v1/trace", post(trace))
        .fallback(async || {
            ApiError(StatusCode::NOT_FOUND, format!("there is nothing at this path: expected {PATHS}"))
        })
        .method_not_allowed_fallback(async || {
            ApiError(StatusCode::METHOD_NOT_ALLOWED, "this path takes another method".into())
        })
        .layer(DefaultBodyLimit::max(MAX_BODY))
        .layer(middleware::from_fn(in_time))
        .with_state(app)
}

/// The same, for those who know the token only.
pub(super) fn with_token(router: Router, token: &str) -> Router {
    let expected: Arc<str> = format!("Bearer {token}").into();
    router.layer(middleware::from_fn(move |request: Request, next: Next| {
        let expected = expected.clone();
        async move {
            let given = request.headers().get(header::AUTHORIZATION).map(|v| v.as_bytes());
            if given.is_some_and(|g| same(g, expected.as_bytes())) {
                return next.run(request).await;
            }
            let message = "expected the header `Authorization: Bearer` with the token of this instance";
            ApiError(StatusCode::UNAUTHORIZED, message.into()).into_response()
        }
    }))
}

/// Compares in a time that does not depend on where the difference is.
fn same(a: &[u8], b: &[u8]) -> bool {
    a.len() == b.len() && a.iter().zip(b).fold(0, |d, (x, y)| d | (x ^ y)) == 0
}

async fn in_time(request: Request, next: Next) -> Response {
    match tokio::time::timeout(REQUEST_TIMEOUT, next.run(request)).await {
        Ok(response) => response,
        Err(_) => ApiError(StatusCode::REQUEST_TIMEOUT, "the request took too long".into()).into_response(),
    }
}

/// An answer that is not a success.
struct ApiError(StatusCode, String);

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        (self.0, Json(ErrorBody { error: self.1 })).into_response()
    }
}

impl From<JsonRejection> for ApiError {
    fn from(r: JsonRejection) -> Self {
        let message = match r {
            JsonRejection::MissingJsonContentType(_) => {
                "expected the header `Content-Type: application/json` (curl sends it with --json)".into()
            }
            _ => r.body_text(),
        };
        ApiError(r.status(), message)
    }
}

impl From<QueryRejection> for ApiError {
    fn from(r: QueryRejection) -> Self {
        ApiError(r.status(), r.body_text())
    }
}

impl From<Refused> for ApiError {
    fn from(r: Refused) -> Self {
        ApiError(StatusCode::CONFLICT, r.0)
    }
}

fn bad(message: impl Into<String>) -> ApiError {
    ApiError(StatusCode::BAD_REQUEST, message.into())
}

fn view<T>(State(app): Shared, of: fn(&dyn Dataplane, &Rates) -> T) -> Json<T> {
    let rates = app.rates.lock().unwrap_or_else(PoisonError::into_inner);
    Json(of(app.plane.as_ref(), &rates))
}

/// Runs what may take long beside the serving thread.
async fn aside<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Result<T, ApiError> {
    let failed = |_| ApiError(StatusCode::INTERNAL_SERVER_ERROR, "the instance is stopping".into());
    tokio::task::spawn_blocking(work).await.map_err(failed)
}

async fn status(State(app): Shared) -> Json<show::Status> {
    Json(show::Status {
        version: app.about.version.clone(),
        pid: std::process::id(),
        uptime_seconds: app.started.elapsed().as_secs(),
        config: app.about.config.clone(),
        resident_bytes: resident(),
    })
}

/// Resident memory of this process, as `/proc/self/status` tells it.
fn resident() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = text.lines().find_map(|l| l.strip_prefix("VmRSS:"))?;
    line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok().map(|kb| kb * 1024)
}

async fn interfaces(State(app): Shared) -> Json<show::Interfaces> {
    Json(show::Interfaces { interfaces: app.plane.interfaces() })
}

async fn neighbors(State(app): Shared) -> Json<show::Neighbors> {
    let mut neighbors = app.plane.neighbors();
    neighbors.sort_by(|a, b| (&a.interface, a.address).cmp(&(&b.interface, b.address)));
    Json(show::Neighbors { neighbors })
}

async fn acls(
    State(app): Shared,
    query: Result<Query<AclQuery>, QueryRejection>,
) -> Result<Json<show::Acls>, ApiError> {
    let Query(query) = query?;
    Ok(Json(show::Acls { acls: aside(move || app.plane.acls(query.name.as_deref())).await?? }))
}

async fn multicast_routes(
    State(app): Shared,
    query: Result<Query<MulticastQuery>, QueryRejection>,
) -> Result<Json<show::MulticastRoutes>, ApiError> {
    let Query(query) = query?;
    Ok(Json(aside(move || app.plane.multicast_routes(&query)).await??))
}

async fn routes(
    State(app): Shared,
    query: Result<Query<RouteQuery>, QueryRejection>,
) -> Result<Json<show::Routes>, ApiError> {
    let Query(query) = query?;
    if query.prefix.is_some_and(|p| p.trunc() != p) {
        return Err(bad("the prefix has host bits set"));
    }
    if query.longer && query.prefix.is_none() {
        return Err(bad("`longer` needs a `prefix`"));
    }
    if query.limit.is_some_and(|l| l == 0 || l > MAX_PAGE) {
        return Err(bad(format!("expected a limit from 1 to {MAX_PAGE}")));
    }
    Ok(Json(aside(move || app.plane.routes(&query)).await??))
}

fn port_id(plane: &dyn Dataplane, name: &str) -> Result<PortId, ApiError> {
    let ports = plane.ports();
    ports.iter().position(|p| p.name == name).map(|p| p as PortId).ok_or_else(|| {
        let names = ports.iter().map(|p| p.name.as_str()).collect::<Vec<_>>().join(", ");
        bad(format!("there is no port `{}`: expected one of {names}", name.escape_debug()))
    })
}

async fn move_queue(
    State(app): Shared,
    request: Result<Json<MoveQueue>, JsonRejection>,
) -> Result<Json<QueueMoved>, ApiError> {
    let Json(MoveQueue { port, queue, worker }) = request?;
    let id = port_id(app.plane.as_ref(), &port)?;
    let mut queues: Vec<_> = app.plane.queues().iter().filter(|q| q.port == id).map(|q| q.queue).collect();
    if !queues.contains(&queue) {
        queues.sort_unstable();
        let one_of = if queues.len() > 1 { "one of " } else { "" };
        let queues = queues.iter().map(u16::to_string).collect::<Vec<_>>().join(", ");
        return Err(bad(format!("port `{port}` has no receive queue {queue}: expected {one_of}{queues}")));
    }
    let moved = aside(move || app.plane.move_queue(id, queue, worker)).await??;
    Ok(Json(QueueMoved { port, queue, from: moved.from, to: worker, gap_ns: moved.gap }))
}

async fn trace(
    State(app): Shared,
    request: Result<Json<TraceRequest>, JsonRejection>,
) -> Result<Json<show::Trace>, ApiError> {
    let Json(TraceRequest { packets, port, wait_ms }) = request?;
    if packets == 0 || packets > MAX_TRACE {
        return Err(bad(format!("expected 1 to {MAX_TRACE} packets")));
    }
    if wait_ms > MAX_TRACE_WAIT {
        return Err(bad(format!("expected a wait of at most {MAX_TRACE_WAIT} ms")));
    }
    let port = port.map(|p| port_id(app.plane.as_ref(), &p)).transpose()?;
    let _alone = app.tracing.lock().await;
    let plane = app.plane.clone();
    plane.take_trace();
    let lost = views::trace_lost(plane.as_ref());
    // Ends tracing also where the client does not wait for the answer: this is dropped at the next point of waiting then.
    let armed = Armed(plane.as_ref());
    plane.trace(packets, port)?;
    let wanted = packets as usize * plane.workers().len();
    let end = tokio::time::Instant::now() + Duration::from_millis(wait_ms);
    let mut hops = Vec::new();
    loop {
        tokio::time::sleep(Duration::from_millis(20)).await;
        let new = plane.take_trace();
        let quiet = new.is_empty();
        hops.extend(new);
        let seen: std::collections::HashSet<_> = hops.iter().map(|(w, h)| (*w, h.packet)).collect();
        if tokio::time::Instant::now() >= end || (quiet && seen.len() >= wanted) {
            break;
        }
    }
    drop(armed);
    let lost = views::trace_lost(plane.as_ref()).saturating_sub(lost);
    Ok(Json(views::trace(plane.as_ref(), hops, lost)))
}

/// Tracing, which ends when this is dropped.
struct Armed<'p>(&'p dyn Dataplane);

impl Drop for Armed<'_> {
    fn drop(&mut self) {
        // Fails only where the workers have stopped, and tracing with them.
        let _ = self.0.trace(0, None);
    }
}
