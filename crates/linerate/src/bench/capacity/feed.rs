//! Who stands for FRR: a thread in a network namespace of its own that writes to the router's FPM port.

use std::io::Write as _;
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::time::Instant;

use anyhow::{Context, Result, anyhow};
use linerate_linux::netlink::enter_new;
use linerate_tester::ip::Ip;
use linerate_tester::table::{NEXT_HOPS, Routes};
use nix::net::if_::if_nametoindex;

use super::super::fpm_messages as messages;
use crate::demo::plan;

/// Bytes written at a time.
const PIECE: usize = 64 << 10;

/// The routes of one family in the order in which they come: first those that traffic goes by.
pub(super) struct Table<A> {
    pub(super) routes: Routes<A>,
    /// Indices into `routes`.
    pub(super) order: Vec<u32>,
    /// How many come first.
    pub(super) kept: usize,
}

impl<A: Ip> Table<A> {
    /// All but the first.
    fn part(&self, part: Part) -> &[u32] {
        let (kept, rest) = self.order.split_at(self.kept.min(self.order.len()));
        if part == Part::Kept { kept } else { rest }
    }

    /// How many routes a part has.
    pub(super) fn count(&self, part: Part) -> usize {
        self.part(part).len()
    }
}

/// Which routes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Part {
    /// Those that traffic goes by all the time, with the next-hop objects.
    Kept,
    /// The others.
    Rest,
}

/// What is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Word {
    /// A session begins.
    Connect,
    /// These routes.
    Announce(Part),
    /// These no longer.
    Withdraw(Part),
    /// The session ends.
    Close,
}

/// The thread, as its owner sees it. It ends when this is dropped.
pub(super) struct Feed {
    /// Path of its namespace.
    pub(super) namespace: PathBuf,
    words: mpsc::Sender<Word>,
    done: mpsc::Receiver<Result<()>>,
}

impl Feed {
    /// Starts the thread, which writes to `address` in its namespace.
    pub(super) fn start<'s, 'e: 's>(
        scope: &'s std::thread::Scope<'s, 'e>,
        address: SocketAddr,
        ip4: &'e Table<u32>,
        ip6: &'e Table<u128>,
    ) -> Result<Feed> {
        let (words, words_in) = mpsc::channel();
        let (done, done_out) = mpsc::channel();
        let (path, path_out) = mpsc::channel();
        std::thread::Builder::new().name("feed".into()).spawn_scoped(scope, move || {
            let entered = enter_new().context("a network namespace cannot be made; this needs root");
            let fine = entered.is_ok();
            let _ = path.send(entered);
            let mut writer = Writer { address, session: None, ip4, ip6 };
            while fine && let Ok(word) = words_in.recv() {
                let _ = done.send(writer.word(word));
            }
        })?;
        let namespace =
            path_out.recv().map_err(|_| anyhow!("the thread that feeds routes ended early"))??;
        Ok(Feed { namespace, words, done: done_out })
    }

    /// Has something written and returns at once.
    pub(super) fn say(&self, word: Word) -> Result<()> {
        self.words.send(word).map_err(|_| anyhow!("the thread that feeds routes ended early"))
    }

    /// Waits until what was said is written.
    pub(super) fn written(&self) -> Result<()> {
        self.done.recv().map_err(|_| anyhow!("the thread that feeds routes ended early"))?
    }

    /// The namespace.
    pub(super) fn namespace(&self) -> &Path {
        &self.namespace
    }
}

struct Writer<'a> {
    address: SocketAddr,
    session: Option<TcpStream>,
    ip4: &'a Table<u32>,
    ip6: &'a Table<u128>,
}

impl Writer<'_> {
    fn word(&mut self, word: Word) -> Result<()> {
        match word {
            Word::Connect => {
                let session = TcpStream::connect(self.address);
                self.session = Some(session.context("the router's FPM port does not answer")?);
            }
            Word::Close => self.session = None,
            Word::Announce(part) => {
                if part == Part::Kept {
                    self.write(&objects()?)?;
                }
                self.routes(part, true)?;
            }
            Word::Withdraw(part) => {
                self.routes(part, false)?;
                if part == Part::Kept {
                    let mut out = Vec::new();
                    (1..=2 * NEXT_HOPS).for_each(|id| messages::no_object(&mut out, id));
                    self.write(&out)?;
                }
            }
        }
        Ok(())
    }

    fn routes(&mut self, part: Part, announced: bool) -> Result<()> {
        let (ip4, ip6) = (self.ip4, self.ip6);
        self.table(ip4, part, announced, 0)?;
        self.table(ip6, part, announced, NEXT_HOPS)
    }

    /// Next hop N of a family is object N, or that far behind.
    fn table<A: Ip>(&mut self, table: &Table<A>, part: Part, announced: bool, first: u32) -> Result<()> {
        let mut out = Vec::with_capacity(PIECE + 256);
        let begin = Instant::now();
        for index in table.part(part) {
            let Some((prefix, next_hop)) = table.routes.get(*index as usize) else { continue };
            messages::route(&mut out, *prefix, announced.then_some(first + next_hop));
            if out.len() >= PIECE {
                self.write(&out)?;
                out.clear();
            }
        }
        self.write(&out)?;
        tracing::debug!("{} routes written in {:?}", table.part(part).len(), begin.elapsed());
        Ok(())
    }

    fn write(&mut self, bytes: &[u8]) -> Result<()> {
        let session = self.session.as_mut().ok_or_else(|| anyhow!("there is no FPM session"))?;
        session.write_all(bytes).context("the router closed the FPM session")
    }
}

/// The next hops of both families as objects, by the taps of this thread's namespace.
fn objects() -> Result<Vec<u8>> {
    let mut out = Vec::new();
    let tap = |n: u32| {
        let name = plan::PORTS.get(usize::from(plan::port_of(n))).copied().unwrap_or_default();
        if_nametoindex(name).with_context(|| format!("there is no tap {name}"))
    };
    for n in 1..=NEXT_HOPS {
        messages::object(&mut out, n, plan::gateway4(n).into(), tap(n)?);
        messages::object(&mut out, NEXT_HOPS + n, plan::gateway6(n).into(), tap(n)?);
    }
    Ok(out)
}
