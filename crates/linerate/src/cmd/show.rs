//! `linerate show`.

use std::io::{self, Write};
use std::net::IpAddr;
use std::time::Duration;

use clap::builder::PossibleValuesParser;
use clap::{Args, Subcommand};
use ipnet::IpNet;
use linerate_control::api::Client;
use linerate_control::show::multicast::MulticastQuery;
use linerate_control::show::routes::{MAX_PAGE, RouteQuery};
use linerate_control::show::{self, Text};
use linerate_router::model::Source;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::client::{Target, watch};
use crate::exit::Failure;

/// Look at a running instance.
///
/// Rates are per second over about the last second. Bits per second are layer 1: frames with preamble, FCS and gap.
#[derive(Args, Debug)]
pub(crate) struct ShowArgs {
    #[command(subcommand)]
    view: View,

    #[command(flatten)]
    target: Target,

    /// Print again every so many seconds
    #[arg(long, value_name = "SECONDS", global = true, num_args = 0..=1, default_missing_value = "1", value_parser = seconds)]
    watch: Option<f64>,
}

#[derive(Subcommand, Debug)]
enum View {
    /// The instance: version, process, uptime, memory
    Status,
    /// Devices, links and traffic
    Ports,
    /// Polling threads and how busy they are
    Workers,
    /// Receive queues and which worker polls them
    Queues,
    /// The router's interfaces and their addresses
    Interfaces,
    /// Link-layer addresses of hosts on the links
    Neighbors,
    /// Addresses of this router that others use as well
    Conflicts,
    /// Access lists: rules and what they have matched
    Acl {
        /// Only this list
        #[arg(value_name = "NAME", conflicts_with = "log")]
        name: Option<String>,
        /// Samples of what rules with `log` have matched
        #[arg(long)]
        log: bool,
    },
    /// The join to Linux: FRR's session, kernel routes, taps
    Linux,
    /// Packets given to Linux, by class, and what was policed
    Punt,
    /// What the control logic counts: neighbours, tables, events lost
    Router,
    /// Dropped packets by reason, and packets that no counter explains
    Drops,
    /// The packet graph: nodes, what they cost, where they lead
    Graph {
        /// Print the graph in the DOT language
        #[arg(long)]
        dot: bool,
    },
    /// Forwarding tables and what they occupy
    Fib,
    /// Routing tables and the interfaces that follow them
    Vrfs,
    /// Routes, filtered and in pages
    Routes(RoutesArgs),
    /// Multicast forwarding
    #[command(subcommand)]
    Multicast(Multicast),
}

#[derive(Subcommand, Debug)]
enum Multicast {
    /// Multicast routes, what they counted, and when they were last used
    Routes {
        /// Only routes for this group
        #[arg(value_name = "GROUP")]
        group: Option<IpAddr>,

        /// Only routes for this source
        #[arg(long, value_name = "SOURCE")]
        source: Option<IpAddr>,

        /// Only routes that come in, or go out, by this interface
        #[arg(long, value_name = "INTERFACE")]
        interface: Option<String>,

        /// Only routes of this VRF
        #[arg(long, value_name = "VRF")]
        vrf: Option<String>,
    },
}

#[derive(Args, Debug)]
struct RoutesArgs {
    /// Only the route to exactly this prefix
    #[arg(value_name = "PREFIX", value_parser = prefix)]
    prefix: Option<IpNet>,

    /// With PREFIX: also the more specific routes inside it
    #[arg(long, requires = "prefix")]
    longer: bool,

    /// Only the route that packets to this address take
    #[arg(long, value_name = "ADDRESS", conflicts_with = "prefix")]
    longest: Option<IpAddr>,

    /// Routes of this VRF; without it, of the default one
    #[arg(long, value_name = "VRF")]
    vrf: Option<String>,

    /// Only routes with this gateway
    #[arg(long, value_name = "GATEWAY")]
    via: Option<IpAddr>,

    /// Only routes of this source
    #[arg(long, value_name = "SOURCE", value_parser = PossibleValuesParser::new(Source::ALL.map(Source::name)))]
    source: Option<String>,

    /// Only routes that leave by this interface
    #[arg(long, value_name = "INTERFACE")]
    interface: Option<String>,

    /// Only what follows this prefix
    #[arg(long, value_name = "PREFIX", value_parser = prefix)]
    after: Option<IpNet>,

    /// Print the routes of at most so many prefixes
    #[arg(long, value_name = "N", default_value_t = 1000, conflicts_with = "all")]
    limit: usize,

    /// Print all matching routes, however many
    #[arg(long)]
    all: bool,
}

pub(crate) fn run(args: &ShowArgs) -> Result<(), Failure> {
    let client = args.target.client()?;
    match &args.view {
        View::Status => args.view::<show::Status>(&client, "/v1/status"),
        View::Ports => args.view::<show::Ports>(&client, "/v1/ports"),
        View::Workers => args.view::<show::Workers>(&client, "/v1/workers"),
        View::Queues => args.view::<show::Queues>(&client, "/v1/queues"),
        View::Interfaces => args.view::<show::Interfaces>(&client, "/v1/interfaces"),
        View::Neighbors => args.view::<show::Neighbors>(&client, "/v1/neighbors"),
        View::Conflicts => args.view::<show::Conflicts>(&client, "/v1/conflicts"),
        View::Acl { log: true, .. } => args.view::<show::AclLog>(&client, "/v1/acl-log"),
        View::Acl { name: None, .. } => args.view::<show::Acls>(&client, "/v1/acls"),
        View::Acl { name: Some(name), .. } => args.view::<show::Acls>(&client, &acl_path(name)?),
        View::Linux => args.view::<show::Linux>(&client, "/v1/linux"),
        View::Punt => args.view::<show::Punt>(&client, "/v1/punt"),
        View::Router => args.view::<show::Router>(&client, "/v1/router"),
        View::Drops => args.view::<show::Drops>(&client, "/v1/drops"),
        View::Vrfs => args.view::<show::Vrfs>(&client, "/v1/vrfs"),
        View::Fib => args.view::<show::Fibs>(&client, "/v1/fib"),
        View::Graph { dot: true } => {
            let graph: show::Graph = client.get("/v1/graph")?;
            io::stdout().write_all(graph.dot.as_bytes())?;
            Ok(())
        }
        View::Graph { dot: false } => args.view::<show::Graph>(&client, "/v1/graph"),
        View::Routes(routes) => args.show(|| routes.ask(&client)),
        View::Multicast(Multicast::Routes { group, source, interface, vrf }) => {
            let (vrf, interface) = (vrf.clone(), interface.clone());
            let query = MulticastQuery { vrf, group: *group, source: *source, interface };
            args.view::<show::MulticastRoutes>(&client, &query.to_path())
        }
    }
}

impl ShowArgs {
    fn view<M: Text + Serialize + DeserializeOwned>(
        &self,
        client: &Client,
        path: &str,
    ) -> Result<(), Failure> {
        self.show(|| Ok(client.get::<M>(path)?))
    }

    fn show<M: Text + Serialize>(&self, mut ask: impl FnMut() -> Result<M, Failure>) -> Result<(), Failure> {
        match self.watch {
            Some(seconds) => watch(&self.target, Duration::from_secs_f64(seconds), ask),
            None => self.target.print(&ask()?),
        }
    }
}

impl RoutesArgs {
    /// One answer, or as many as it takes for all.
    fn ask(&self, client: &Client) -> Result<show::Routes, Failure> {
        let mut query = RouteQuery {
            vrf: self.vrf.clone(),
            prefix: self.prefix,
            longer: self.longer,
            longest: self.longest,
            via: self.via,
            interface: self.interface.clone(),
            source: self.source.clone(),
            after: self.after,
            limit: Some(1),
        };
        let mut found = show::Routes::default();
        let mut missing = if self.all { usize::MAX } else { self.limit };
        while missing > 0 {
            let page = missing.min(MAX_PAGE);
            query.limit = Some(page);
            let more: show::Routes = client.get(&query.to_path())?;
            found.routes.extend(more.routes);
            found.next = more.next;
            if more.next.is_none() {
                break;
            }
            query.after = more.next;
            missing -= page;
        }
        Ok(found)
    }
}

/// A prefix; an address alone is its host route.
fn prefix(text: &str) -> Result<IpNet, String> {
    let net = text.parse::<IpNet>().or_else(|_| text.parse::<IpAddr>().map(IpNet::from));
    let net = net.map_err(|_| "expected a prefix such as 198.51.100.0/24 or 2001:db8::/32".to_owned())?;
    if net.trunc() != net {
        return Err(format!("{net} has host bits set: expected {}", net.trunc()));
    }
    Ok(net)
}

/// Where one list is asked for. A name that no configuration accepts is not asked for.
fn acl_path(name: &str) -> Result<String, Failure> {
    let good = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
    if !name.chars().all(good) {
        return Err(anyhow::anyhow!("no access list can be named `{}`", name.escape_debug()).into());
    }
    Ok(format!("/v1/acls?name={name}"))
}

fn seconds(text: &str) -> Result<f64, String> {
    let good = |s: &f64| (0.1..=3600.0).contains(s);
    text.parse()
        .ok()
        .filter(good)
        .ok_or_else(|| "expected seconds from 0.1 to 3600 (the view goes before --watch)".into())
}
