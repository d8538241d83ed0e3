#!/bin/sh
# Installs Toolbay @VERSION@ for one user, or below TOOLBAY_PREFIX. It downloads one archive, compares its checksum with the one
# below, and unpacks it. Nothing else is changed: `rm -r PREFIX/lib/toolbay PREFIX/bin/toolbay` removes it.
#
#   TOOLBAY_PREFIX   where to install; default ~/.local
#   TOOLBAY_URL      where the archives are; default @URL@
set -eu

fail() {
    printf 'error: %s\n' "$1" >&2
    exit 1
}

has() {
    command -v "$1" >/dev/null 2>&1
}

# The whole script is read before it runs: a download that breaks off runs nothing.
main() {
    prefix=${TOOLBAY_PREFIX:-${HOME:?is not set}/.local}
    url=${TOOLBAY_URL:-@URL@}
    [ "$(uname -s)" = Linux ] || fail "Toolbay runs on Linux, not on $(uname -s)"
    machine=$(uname -m)
    case $machine in
    x86_64) checksum=@SHA256_X86_64@ ;;
    aarch64) checksum=@SHA256_AARCH64@ ;;
    *) fail "there is no program for $machine, only for x86_64 and aarch64" ;;
    esac
    name=toolbay-@VERSION@-$machine-linux

    mkdir -p "$prefix/lib" "$prefix/bin"
    part=$(mktemp -d "$prefix/lib/toolbay.XXXXXX")
    trap 'rm -rf "$part"' EXIT
    trap 'exit 1' HUP INT TERM
    archive=$part/$name.tar.gz
    if has curl; then
        curl --fail --silent --show-error --location --output "$archive" "$url/$name.tar.gz"
    elif has wget; then
        wget --quiet --output-document="$archive" "$url/$name.tar.gz"
    else
        fail "install curl or wget"
    fi || fail "cannot download $url/$name.tar.gz"

    if has sha256sum; then
        found=$(sha256sum "$archive")
    elif has shasum; then
        found=$(shasum -a 256 "$archive")
    else
        fail "install sha256sum or shasum"
    fi
    [ "${found%% *}" = "$checksum" ] ||
        fail "$url/$name.tar.gz has the checksum ${found%% *} instead of $checksum; nothing was installed"

    tar -xzf "$archive" -C "$part"
    rm -rf "$prefix/lib/toolbay"
    mv "$part/$name" "$prefix/lib/toolbay"
    ln -sf ../lib/toolbay/bin/toolbay "$prefix/bin/toolbay"
    printf 'installed Toolbay @VERSION@ as %s\n' "$prefix/bin/toolbay"
    case :${PATH-}: in
    *":$prefix/bin:"*) ;;
    *) printf 'note: %s is not on PATH\n' "$prefix/bin" ;;
    esac
    printf 'next: toolbay serve %s\n' "$prefix/lib/toolbay/lib/toolbay/plugins"
}

main
