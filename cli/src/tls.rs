//! `braid tls init`: an authority and two certificates, in the files that NBD clients look for.
//!
//! The names are those of GnuTLS-based clients (`nbdinfo 'nbds://…?tls-certificates=DIR'`, `qemu --object
//! tls-creds-x509,dir=DIR`): `ca-cert.pem`, `server-cert.pem`, `server-key.pem`, `client-cert.pem`, `client-key.pem`.
//! Keys are written 0600 in a folder 0700. The authority's key is thrown away: nobody can sign a third certificate, and
//! whoever needs one makes all of them anew.

use crate::commands::{Outcome, print};
use crate::render;
use braid_host::control::api::ApiError;
use braid_host::control::server::own_uid;
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, KeyUsagePurpose,
};
use std::fs::{DirBuilder, OpenOptions};
use std::io::Write;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

const FILES: [&str; 5] = ["ca-cert.pem", "server-cert.pem", "server-key.pem", "client-cert.pem", "client-key.pem"];

/// Where certificates are looked for when nobody says.
fn usual_directory() -> PathBuf {
    if own_uid() == 0 {
        return "/etc/braid/tls".into();
    }
    let set = |name: &str| std::env::var_os(name).filter(|v| !v.is_empty()).map(PathBuf::from);
    let config = set("XDG_CONFIG_HOME").or_else(|| Some(set("HOME")?.join(".config")));
    config.unwrap_or_else(|| format!("/tmp/braid-{}", own_uid()).into()).join("braid/tls")
}

pub(crate) fn init(directory: Option<PathBuf>, names: &[String], force: bool, json: bool) -> Outcome {
    let directory = directory.unwrap_or_else(usual_directory);
    let there: Vec<&str> = FILES.into_iter().filter(|f| directory.join(f).exists()).collect();
    if !there.is_empty() && !force {
        let message =
            format!("{} has {} already; clients that trust it would be cut off", directory.display(), there.join(" "));
        return Err(
            ApiError::refused("tls.exists", message).hint("add -f to replace, or choose another folder with --dir")
        );
    }
    let contents =
        make(names).map_err(|e| ApiError::failed("tls.failed", format!("making certificates failed: {e}")))?;
    let failed = |what: &Path| {
        let what = what.display().to_string();
        move |e: std::io::Error| ApiError::failed("tls.failed", format!("writing {what} failed: {e}"))
    };
    DirBuilder::new().recursive(true).mode(0o700).create(&directory).map_err(failed(&directory))?;
    for (name, text) in FILES.into_iter().zip(&contents) {
        write(&directory.join(name), text).map_err(failed(&directory.join(name)))?;
    }
    if json {
        let paths: Vec<String> = FILES.iter().map(|f| directory.join(f).display().to_string()).collect();
        print(&render::envelope("tls.init", paths, false));
        return Ok(0);
    }
    print(&format!("{}\n", directory.display()));
    eprintln!("  server: braid share tank/vm0 nbd --tcp --tls require --tls-certificates {}", directory.display());
    eprintln!(
        "  client: copy ca-cert.pem client-cert.pem client-key.pem; nbdinfo 'nbds://HOST/tank/vm0?tls-certificates=DIR'"
    );
    Ok(0)
}

/// Never seen half written, never wider than 0600.
fn write(path: &Path, text: &str) -> std::io::Result<()> {
    let fresh = path.with_extension("pem.new");
    let _ = std::fs::remove_file(&fresh);
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&fresh)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()?;
    std::fs::rename(&fresh, path)
}

/// The contents of [`FILES`], in their order.
fn make(names: &[String]) -> Result<[String; 5], rcgen::Error> {
    let mut authority = CertificateParams::new(Vec::<String>::new())?;
    authority.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    authority.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::DigitalSignature];
    authority.distinguished_name.push(DnType::CommonName, "braid authority");
    let authority_key = KeyPair::generate()?;
    let authority_cert = authority.self_signed(&authority_key)?;
    let issuer = Issuer::new(authority, authority_key);

    let leaf = |common: &str, names: &[String], purpose| -> Result<(String, String), rcgen::Error> {
        let mut params = CertificateParams::new(names.to_vec())?;
        params.distinguished_name.push(DnType::CommonName, common);
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![purpose];
        params.use_authority_key_identifier_extension = true;
        let key = KeyPair::generate()?;
        Ok((params.signed_by(&key, &issuer)?.pem(), key.serialize_pem()))
    };
    let (server, server_key) = leaf("braid server", names, ExtendedKeyUsagePurpose::ServerAuth)?;
    let (client, client_key) = leaf("braid client", &[], ExtendedKeyUsagePurpose::ClientAuth)?;
    Ok([authority_cert.pem(), server, server_key, client, client_key])
}
