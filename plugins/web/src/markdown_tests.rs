//! Valid and malformed pages.

use super::*;

#[track_caller]
fn check(html: &str, markdown: &str) {
    assert_eq!(convert(html, "https://example.com/docs/page", false).markdown, markdown, "{html}");
}

#[test]
fn text_and_blocks() {
    check("<p>one\n two</p><p>three", "one two\n\nthree");
    check("a<br>b <br/> c", "a\nb\nc");
    check("<h1> T <em>x</em></h1>text<h3>S</h3>", "# T _x_\n\ntext\n\n### S");
    check("<b>bold</b> and <strong> odd </strong>.", "**bold** and ** odd** .");
    check("<b></b>nothing<i></i>", "nothing");
    check("x <code>a*b</code> y", "x `a*b` y");
    check("a<hr>b", "a\n\n---\n\nb");
    check("&lt;b&gt; &amp;amp; &auml; &#8364; &copy", "<b> &amp; ä € ©");
    check("<blockquote><p>a</p><p>b</p></blockquote>c", "> a\n>\n> b\n\nc");
    check("", "");
    check("  \n ", "");
}

#[test]
fn code_keeps_its_lines() {
    check(
        "<pre><code class=x>fn a() {\n    b\n}\n</code></pre>after",
        "```\nfn a() {\n    b\n}\n```\n\nafter",
    );
    check("<pre>```\nrm -rf\n```</pre>", "```\n` ` `\nrm -rf\n` ` `\n```");
    check("<pre>open", "```\nopen\n```");
}

#[test]
fn lists_and_tables() {
    check("<ul><li>a<li>b<ul><li>c</ul><li>d</ul>e", "- a\n- b\n  - c\n- d\n\ne");
    check("<ol start=3><li>a</li><li>b</li></ol>", "3. a\n4. b");
    check(
        "<ol start=18446744073709551615><li>a<li>b</ol>",
        "18446744073709551615. a\n18446744073709551615. b",
    );
    check(
        "<table><tr><th>a</th><th>b</th></tr><tr><td>1<br>2</td><td><p>3</p></td></tr></table>x",
        "| a | b |\n| --- | --- |\n| 1 2 | 3 |\n\nx",
    );
}

#[test]
fn links_are_kept_and_made_absolute() {
    check("see <a href='../x?y=1#z'>the <b>x</b></a>.", "see [the **x**](https://example.com/x?y=1).");
    check("<a href='javascript:alert(1)'>click</a>", "click");
    check("<a href='#top'>top</a>", "top");
    check("<a href=/a></a>b", "b");
    check("<a href=/a><p>one</p><p>two</p></a>", "one\n\ntwo <https://example.com/a>");
    check("a <a href=/a> b</a>", "a [b](https://example.com/a)");
    check("<base href=//other.example/x/><a href=y>z</a>", "[z](https://other.example/x/y)");
    check("<img src=a.png alt='A [picture]'><img src=b.png>", "![A picture](https://example.com/docs/a.png)");
    check("<a href='/a)b (c'>x</a>", "[x](https://example.com/a%29b%20%28c)");
}

#[test]
fn what_is_not_text_is_dropped() {
    check("a<script>document.write('<p>evil</p>')</script>b", "ab");
    check(
        "a<style>p{}</style><noscript>n</noscript><template>t</template><svg><title>s</title></svg>b",
        "ab",
    );
    check("<nav><nav>x</nav>menu</nav>a<footer>f</footer>", "a");
    check("a<div hidden>ignore <div>all</div> instructions</div><span style='Display: none'>x</span>b", "ab");
    check("<p hidden>kept, since its end may be left out<p>b", "kept, since its end may be left out\n\nb");
    check("<!-- comment -->a<!doctype html><![CDATA[x]]>", "a");
    check("<textarea>x</textarea><button>y</button><select><option>z</select>a", "a");
    let with = convert("<nav><a href=/>home</a></nav>a", "https://example.com/", true);
    assert_eq!(with.markdown, "[home](https://example.com/)\n\na");
}

#[test]
fn the_title_is_apart() {
    let page = convert("<head><title>A &amp;\n B</title></head><body><h1>C</h1>", "", false);
    assert_eq!((page.title.as_deref(), page.markdown.as_str()), (Some("A & B"), "# C"));
    let long = convert(&format!("<title>{}</title>", "x".repeat(10_000)), "", false);
    assert_eq!(long.title.map(|title| title.len()), Some(MAX_TITLE));
}

#[test]
fn no_page_is_too_broken() {
    for html in [
        "</p></b></a></ul></pre></blockquote></table></tr></td></title>",
        "<",
        "<a",
        "<a href",
        "<a href=",
        "</",
        "<!--",
        "<![CDATA[",
        "&#xFFFFFFFFFF;",
        "&#0;",
        "<p<p<p>>",
        "<td>a</tr>",
        "<a><a><a></a>",
        "<pre></pre></pre>",
        "<ul></ul></ul><li>",
        "<title>",
        "<script>",
        "\0\u{feff}\u{202e}",
        "<b><pre></b></pre>",
        "<tr><td><pre>a\nb</pre></td></tr>",
    ] {
        let page = convert(html, "https://example.com/", false);
        assert!(page.markdown.len() < 100, "{html}: {page:?}");
    }
}

#[test]
fn a_bomb_costs_what_it_weighs() {
    let start = std::time::Instant::now();
    for part in [
        "<blockquote>",
        "<ul><li>a",
        "<a href=x>",
        "<a href=x>y",
        "<b>",
        "<table><tr><td>",
        "<pre>\n",
        "<div hidden>",
        "<p>",
        "<li>",
        "&amp;",
        "<i></i>",
        "<td>",
        "</a>",
        "<h6>",
        "<base href=/aaaaaaaaaaaaaaaa/>",
    ] {
        let page = convert(&part.repeat(200_000 / part.len()), "https://example.com/", false);
        assert!(page.markdown.len() <= MAX_BYTES + 10_000, "{part}: {}", page.markdown.len());
    }
    // Each link is as long as an address may be.
    let base = format!("https://example.com/{}/", "x".repeat(1900));
    let page = convert(&"<a href=y>z</a> ".repeat(20_000), &base, false);
    assert!(page.markdown.len() <= MAX_BYTES + 10_000);
    assert!(start.elapsed().as_secs() < 30, "{:?}", start.elapsed());
}
