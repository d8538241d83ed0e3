//! A TCP proxy in front of NATS, for partitions: it can stop to forward without closing a connection.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// A proxy. Its threads end with the test program.
pub(crate) struct Proxy {
    pub(crate) port: u16,
    is_cut: Arc<AtomicBool>,
}

impl Proxy {
    /// A proxy to a port of this machine.
    pub(crate) fn start(target: u16) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let is_cut = Arc::<AtomicBool>::default();
        let cut = Arc::clone(&is_cut);
        std::thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                let Ok(server) = TcpStream::connect(("127.0.0.1", target)) else { continue };
                for (from, to) in [(&client, &server), (&server, &client)] {
                    let (from, to) = (from.try_clone().unwrap(), to.try_clone().unwrap());
                    let cut = Arc::clone(&cut);
                    std::thread::spawn(move || forward(from, to, &cut));
                }
            }
        });
        Self { port, is_cut }
    }

    /// Holds back what is sent from now on, or forwards it.
    pub(crate) fn cut(&self, is_cut: bool) {
        self.is_cut.store(is_cut, Ordering::SeqCst);
    }
}

fn forward(mut from: TcpStream, mut to: TcpStream, is_cut: &AtomicBool) {
    let mut buffer = [0; 16 << 10];
    while let Ok(read @ 1..) = from.read(&mut buffer) {
        while is_cut.load(Ordering::SeqCst) {
            std::thread::sleep(Duration::from_millis(5));
        }
        if to.write_all(&buffer[..read]).is_err() {
            return;
        }
    }
}
