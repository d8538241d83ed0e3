//! A command line program that does not know this host. Its first argument selects its behaviour.

use std::io::{Read, Write};
use std::process::exit;

fn main() {
    let mut args = std::env::args();
    let name = args.next().unwrap_or_default();
    let mode = args.next().unwrap_or_default();
    let rest: Vec<String> = args.collect();
    let first = rest.first().map_or("", String::as_str);
    let number = || first.parse::<usize>().unwrap_or_default();
    match mode.as_str() {
        "args" => println!("{name}: {}", rest.join("|")),
        "cat" => {
            let mut text = Vec::new();
            std::io::stdin().read_to_end(&mut text).expect("stdin can be read");
            std::io::stdout().write_all(&text).expect("stdout takes everything");
        }
        "env" => println!("{}", std::env::var(first).unwrap_or_else(|_| "(not set)".to_owned())),
        "read" => match std::fs::read_to_string(first) {
            Ok(text) => print!("{text}"),
            Err(error) => {
                eprintln!("{first}: {error}");
                exit(1);
            }
        },
        "write" => {
            if let Err(error) = std::fs::write(first, "written") {
                eprintln!("{first}: {error}");
                exit(1);
            }
        }
        "connect" => match std::net::TcpStream::connect(first) {
            Ok(_) => println!("connected"),
            Err(error) => {
                eprintln!("{error}");
                exit(1);
            }
        },
        "exit" => {
            print!("printed before");
            eprintln!("it went {} wrong", "very ".repeat(rest.len()));
            exit(number() as i32);
        }
        "flood" => print!("{}", "x".repeat(number())),
        "errors" => {
            for line in 0..number() {
                eprintln!("line {line}");
            }
            exit(2);
        }
        "spin" => loop {
            std::hint::spin_loop();
        },
        "sleep" => std::thread::sleep(std::time::Duration::from_secs(3600)),
        "panic" => panic!("as asked"),
        "time" => {
            let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
            println!("{}", since.unwrap_or_default().as_secs());
        }
        "print" => print!("{}", rest.join(" ")),
        "bytes" => std::io::stdout().write_all(&[b'a', 0xff, b'b']).expect("stdout takes everything"),
        other => {
            eprintln!("no mode `{other}`");
            exit(64);
        }
    }
}
