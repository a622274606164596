//! How many routes a second the FPM decoder and the FPM server take: `fpm_rate [ROUTES]` (1,000,000); or, with
//! `fpm_rate listen`, how many a real FRR sends to 127.0.0.1:2620.
//!
//! The messages are those that FRR 8.4.4 sends for a BGP route by a next-hop group and for one by two next hops of its
//! own, with other prefixes. Three ways in turn, five rounds: decoding from memory, decoding the same by
//! `netlink-packet-route`, and through the server over TCP on the loopback with the sender on another thread.

#![allow(clippy::print_stdout, clippy::unwrap_used, reason = "a tool for people")]

use std::hint::black_box;
use std::io::Write;
use std::time::{Duration, Instant};

use linerate_linux::fpm::{FpmServer, FrameDecoder};
use netlink_packet_core::NetlinkMessage;
use netlink_packet_route::RouteNetlinkMessage;

fn main() {
    let argument = std::env::args().nth(1);
    if argument.as_deref() == Some("listen") {
        return listen();
    }
    let routes = argument.map_or(1_000_000, |n| n.parse().unwrap());
    for (name, stream, frame) in
        [("by next-hop object", by_object(routes), 56), ("by two next hops", by_two(routes), 84)]
    {
        let mut rates = [const { Vec::new() }; 3];
        for _ in 0..5 {
            for (way, rates) in [decode, other_decoder, serve].iter().zip(&mut rates) {
                let start = Instant::now();
                way(&stream, frame, routes);
                rates.push(routes as f64 / start.elapsed().as_secs_f64() / 1e6);
            }
        }
        for (way, mut rates) in ["decoder", "netlink-packet-route", "server over TCP"].iter().zip(rates) {
            rates.sort_by(f64::total_cmp);
            println!("{name}: {way}: {:.2} M routes/s ({:.2}-{:.2})", rates[2], rates[0], rates[4]);
        }
    }
}

fn decode(stream: &[u8], _: usize, routes: usize) {
    let mut decoder = FrameDecoder::new();
    let (mut rest, mut seen) = (stream, 0);
    while !rest.is_empty() {
        let space = decoder.space();
        let n = space.len().min(rest.len());
        space[..n].copy_from_slice(&rest[..n]);
        decoder
            .decode(n, |event| {
                black_box(event);
                seen += 1;
            })
            .unwrap();
        rest = &rest[n..];
    }
    assert_eq!(seen, routes);
}

fn other_decoder(stream: &[u8], frame: usize, routes: usize) {
    let frames = stream.chunks_exact(frame);
    let decoded =
        frames.map(|f| black_box(NetlinkMessage::<RouteNetlinkMessage>::deserialize(&f[4..]).unwrap()));
    assert_eq!(decoded.count(), routes);
}

fn serve(stream: &[u8], _: usize, routes: usize) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let mut server = FpmServer::bind("127.0.0.1:0".parse().unwrap()).await.unwrap();
        let mut peer = std::net::TcpStream::connect(server.local_address().unwrap()).unwrap();
        let (mut events, mut seen) = (Vec::new(), 0);
        let stream = stream.to_vec();
        let sender = std::thread::spawn(move || peer.write_all(&stream).map(|()| peer));
        // One more: the connection.
        while seen < routes + 1 {
            server.next(&mut events).await.unwrap();
            seen += events.drain(..).count();
        }
        sender.join().unwrap().unwrap();
    });
}

/// Serves for ever and says what each burst of events came to.
fn listen() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let mut server = FpmServer::bind(([127, 0, 0, 1], linerate_linux::fpm::PORT).into()).await.unwrap();
        let mut events = Vec::new();
        let mut burst: Option<(Instant, Instant, usize)> = None;
        loop {
            match tokio::time::timeout(Duration::from_secs(1), server.next(&mut events)).await {
                Ok(result) => {
                    result.unwrap();
                    let now = Instant::now();
                    let (first, _, count) = burst.unwrap_or((now, now, 0));
                    burst = Some((first, now, count + events.drain(..).count()));
                }
                Err(_quiet) => {
                    if let Some((first, last, count)) = burst.take() {
                        let seconds = (last - first).as_secs_f64();
                        println!("{count} events in {seconds:.3} s; {:?}", server.counters());
                    }
                }
            }
        }
    });
}

/// `rtmsg` of an IPv4 route by BGP in the main table, after FPM's and netlink's headers.
fn head(length: u8, prefix: u32) -> Vec<u8> {
    let mut f = vec![1, 1, 0, length];
    f.extend(u32::from(length - 4).to_ne_bytes());
    f.extend(24u16.to_ne_bytes());
    f.extend(0x501u16.to_ne_bytes());
    f.extend([0; 8]);
    f.extend([2, 24, 0, 0, 254, 186, 0, 1, 0, 0, 0, 0]);
    f.extend([8, 0, 1, 0]);
    f.extend(prefix.to_be_bytes());
    f.extend([8, 0, 6, 0, 20, 0, 0, 0]);
    f
}

fn by_object(routes: usize) -> Vec<u8> {
    (0..routes as u32)
        .flat_map(|i| [head(56, i << 8), vec![8, 0, 30, 0, (i % 200) as u8 + 1, 0, 0, 0]].concat())
        .collect()
}

fn by_two(routes: usize) -> Vec<u8> {
    let hops = [
        36u8, 0, 9, 0, 16, 0, 0, 0, 2, 0, 0, 0, 8, 0, 5, 0, 10, 0, 0, 1, 16, 0, 0, 0, 3, 0, 0, 0, 8, 0, 5, 0,
        10, 0, 1, 1,
    ];
    (0..routes as u32).flat_map(|i| [head(84, i << 8), hops.to_vec()].concat()).collect()
}
