//! The least a component of plain WIT can do. Every host of such components can run it: what is measured is the host.

wit_bindgen::generate!({
    inline: r#"
        package stranger:mountain;

        world echo {
            export echo: func(text: string) -> string;
        }
    "#,
});

struct Mountain;

impl Guest for Mountain {
    fn echo(text: String) -> String {
        text
    }
}

export!(Mountain);
