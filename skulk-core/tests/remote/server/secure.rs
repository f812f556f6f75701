//! Who gets an answer? Keys, certificates and files of sockets.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::time::Duration;

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use skulk::remote::{Identity, Roots, ServeOptions, serve};
use skulk::{ErrorKind, Result, open_checkpoint};

use super::super::root;
use super::{LOST, Replied, Server, ask, get, options, reply, request, served, vindex};

fn pem(name: &str) -> Vec<u8> {
    std::fs::read(root().join("tests/fixtures/tls").join(name)).unwrap()
}

fn identity(name: &str) -> Identity {
    Identity::from_pem(pem(&format!("{name}.pem")), pem(&format!("{name}.key"))).unwrap()
}

fn roots(name: &str) -> Roots {
    Roots::from_pem(pem(&format!("{name}.pem"))).unwrap()
}

fn at(address: &str) -> ServeOptions {
    options().listen(address.parse().unwrap())
}

fn started(options: &ServeOptions) -> Result<Server> {
    serve(&*open_checkpoint(vindex("tiny-llama512.q4kd")).unwrap(), options)
}

#[test]
fn only_who_knows_the_key_is_answered() {
    let server = served(vindex("tiny-llama512.q4kd"), &options().key("open-sesame"));
    assert_eq!(get(&server, "/v1/health").status, 200);
    for path in ["/v1/stats", "/v1/metrics", "/v1/models", "/v1/embed/1"] {
        for wrong in [
            None,
            Some("Bearer open-sesam"),
            Some("Bearer open-sesame2"),
            Some("open-sesame"),
            Some("Basic open-sesame"),
        ] {
            let headers: Vec<_> = wrong.iter().map(|key| ("authorization", *key)).collect();
            let replied = ask(&server, "GET", path, &headers, &[]);
            assert_eq!((replied.status, replied.body.len()), (401, 0), "{path} {wrong:?}");
        }
        let replied = ask(&server, "GET", path, &[("authorization", "Bearer open-sesame")], &[]);
        assert_eq!(replied.status, 200, "{path}");
    }
    // Whether there is a route is not told either.
    assert_eq!(get(&server, "/v1/nope").status, 401);
    assert_eq!(ask(&server, "POST", "/v1/health", &[], &[]).status, 401);
    assert!(!format!("{:?}", options().key("open-sesame")).contains("sesame"));
}

#[test]
fn servers_that_others_reach_have_a_key_or_ask_for_certificates() {
    let (own, clients) = (identity("server"), roots("authority"));
    for (options, field) in [
        (at("http://0.0.0.0:0"), "key"),
        (at("https://0.0.0.0:0").identity(own.clone()), "key"),
        (at("https://127.0.0.1:0"), "identity"),
        (at("http://127.0.0.1:0").identity(own.clone()), "identity"),
        (at("http://127.0.0.1:0").clients(clients.clone()), "clients"),
        (at("http://127.0.0.1:0").key(""), "key"),
        (at("http://127.0.0.1:0").key("two words"), "key"),
        (at("http://127.0.0.1:0").max_rows(0), "max_rows"),
        (at("http://127.0.0.1:0").queue(0), "queue"),
        (at("http://127.0.0.1:0").max_connections(0), "max_connections"),
        (at("http://127.0.0.1:0").max_body(skulk::ByteSize(0)), "max_body"),
        (at("http://192.0.2.1:0").key("k"), "listen"),
    ] {
        let error = started(&options).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{error}");
        assert_eq!(error.context()[0], ("field", field.to_owned()), "{error}");
        assert!(error.hint().is_some());
    }
    assert!(started(&at("http://0.0.0.0:0").key("k")).is_ok());
    assert!(started(&at("https://0.0.0.0:0").identity(own).clients(clients)).is_ok());
    let first = started(&at("http://127.0.0.1:0")).unwrap();
    let error = started(&options().listen(first.address().clone())).unwrap_err();
    assert!(error.to_string().contains("listen"), "{error}");
}

/// Asks for stats with TLS, as whoever has this identity.
fn encrypted(server: &Server, roots: &str, own: Option<&str>) -> std::io::Result<Replied> {
    let certificates = |name: &str| {
        CertificateDer::pem_slice_iter(&pem(name)).map(|found| found.unwrap()).collect::<Vec<_>>()
    };
    let mut trusted = RootCertStore::empty();
    certificates(&format!("{roots}.pem")).into_iter().for_each(|found| trusted.add(found).unwrap());
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
    let config = config.with_root_certificates(trusted);
    let config = match own {
        None => config.with_no_client_auth(),
        Some(name) => {
            let key = PrivateKeyDer::from_pem_slice(&pem(&format!("{name}.key"))).unwrap();
            config.with_client_auth_cert(certificates(&format!("{name}.pem")), key).unwrap()
        }
    };
    let name = ServerName::try_from("localhost").unwrap();
    let connection = ClientConnection::new(Arc::new(config), name).unwrap();
    let mut stream = StreamOwned::new(connection, super::connect(server));
    stream.write_all(&request("GET", "/v1/stats", &[], &[]))?;
    stream.flush()?;
    // A refusal comes with the first bytes.
    let mut first = [0; 1];
    stream.read_exact(&mut first)?;
    Ok(reply(&mut first.chain(stream)))
}

#[test]
fn encrypted_servers_are_reached_by_those_who_trust_them() {
    let server = started(&at("https://localhost:0").identity(identity("server"))).unwrap();
    assert!(server.address().to_string().starts_with("https://localhost:"));
    assert_eq!(encrypted(&server, "authority", None).unwrap().status, 200);
    assert!(encrypted(&server, "stranger", None).is_err());
    // Who does not encrypt gets nothing.
    let mut plain = super::connect(&server);
    plain.write_all(&request("GET", "/v1/health", &[], &[])).unwrap();
    let mut bytes = Vec::new();
    plain.read_to_end(&mut bytes).ok();
    assert!(!bytes.starts_with(b"HTTP"));
}

#[test]
fn clients_without_the_right_certificate_are_refused() {
    let options = at("https://127.0.0.1:0").identity(identity("server")).clients(roots("authority"));
    let server = started(&options).unwrap();
    assert_eq!(encrypted(&server, "authority", Some("client")).unwrap().status, 200);
    for wrong in [None, Some("strange-client"), Some("server")] {
        assert!(encrypted(&server, "authority", wrong).is_err(), "{wrong:?}");
    }
    assert_eq!(encrypted(&server, "authority", Some("client")).unwrap().status, 200);
}

#[test]
fn who_never_encrypts_is_left() {
    let options =
        at("https://127.0.0.1:0").identity(identity("server")).header_timeout(Duration::from_millis(100));
    let server = started(&options).unwrap();
    let mut silent: TcpStream = super::connect(&server);
    assert_eq!(silent.read(&mut [0; 8]).unwrap(), 0);
}

#[cfg(unix)]
#[test]
fn sockets_have_paths_that_clients_can_connect_to() {
    use std::os::unix::net::{SocketAddr, UnixStream};

    let folder = tempfile::tempdir().unwrap();
    let path = |name: usize| folder.path().join("s".repeat(name));
    let longest = (1..200).rev().map(path).find(|path| SocketAddr::from_pathname(path).is_ok()).unwrap();
    let server = started(&at(&format!("unix://{}", longest.display()))).unwrap();
    assert!(UnixStream::connect(&longest).is_ok());
    drop(server);
    let longer = format!("unix://{}s", longest.display());
    let error = started(&at(&longer)).unwrap_err();
    assert_eq!(error.context()[0], ("field", "listen".to_owned()), "{error}");
    assert!(error.message().contains("bytes at most"), "{error}");
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
}

#[cfg(unix)]
#[test]
fn sockets_are_this_users_alone() {
    use std::os::unix::fs::{FileTypeExt, PermissionsExt};
    use std::os::unix::net::{UnixListener, UnixStream};

    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("ffn.sock");
    let options = at(&format!("unix://{}", path.display()));
    // What somebody left behind is replaced, what is something else is not.
    drop(UnixListener::bind(&path).unwrap());
    let server = started(&options).unwrap();
    let found = std::fs::symlink_metadata(&path).unwrap();
    assert!(found.file_type().is_socket());
    assert_eq!(found.permissions().mode() & 0o777, 0o600);
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
    let mut stream = UnixStream::connect(&path).unwrap();
    stream.set_read_timeout(Some(LOST)).unwrap();
    stream.write_all(&request("GET", "/v1/stats", &[], &[])).unwrap();
    assert_eq!(reply(&mut stream).status, 200);
    let error = started(&options).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{error}");
    server.stop(LOST);
    assert!(!path.exists());
    std::fs::write(&path, "a letter").unwrap();
    assert_eq!(started(&options).unwrap_err().kind(), ErrorKind::InvalidArgument);
    assert_eq!(std::fs::read(&path).unwrap(), b"a letter");
}
