class Toolbay < Formula
  desc "Run the tools of LLM agents from WebAssembly components, in a sandbox"
  homepage "@URL@"
  version "@VERSION@"
  license "Apache-2.0"

  depends_on :linux

  on_intel do
    url "@URL@/toolbay-@VERSION@-x86_64-linux.tar.gz"
    sha256 "@SHA256_X86_64@"
  end

  on_arm do
    url "@URL@/toolbay-@VERSION@-aarch64-linux.tar.gz"
    sha256 "@SHA256_AARCH64@"
  end

  def install
    bin.install "bin/toolbay"
    lib.install "lib/toolbay"
    prefix.install "share"
  end

  test do
    assert_match version.to_s, shell_output("#{bin}/toolbay --version")
    assert_match "text__word_count", shell_output("#{bin}/toolbay list --plugins #{lib}/toolbay/plugins --state-dir #{testpath}")
  end
end
