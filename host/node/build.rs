//! Keeps the module in memory: on Linux it links with `-z nodelete`, because threads of hosts run when the environment that
//! loaded it has ended.

fn main() {
    napi_build::setup();
}
