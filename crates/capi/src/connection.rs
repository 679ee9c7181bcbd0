//! Connections to the service of a store.
use crate::call::{Outcome, exclusive, give, path, shared, status, take};
use crate::stat::Space;
use forebay_client::Client;
use libc::{c_char, c_int};

/// A connection to the service of a node.
pub struct Connection {
    pub(crate) client: Client,
}

/// The client of a connection.
///
/// # Safety
/// As [`shared`].
pub(crate) unsafe fn client<'a>(connection: *const Connection) -> Outcome<&'a Client> {
    // SAFETY: as the caller says.
    unsafe { shared(connection) }.map(|c| &c.client)
}

/// Connects to the service that runs on a store: the directory that `forebay mount` was given. One connection is
/// enough for a process; a child of fork() gets one of its own behind the same pointer.
///
/// # Safety
/// `store` is a string; `connection` may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn forebay_connect(
    store: *const c_char,
    connection: *mut *mut Connection,
) -> c_int {
    status(|| {
        let connect = || {
            // SAFETY: a string, as the caller says.
            let store = unsafe { path(store) }?;
            let client = Client::connect(store)?;
            Ok(Connection { client })
        };
        // SAFETY: may be written, as the caller says.
        unsafe { give(connection, connect) }
    })
}

/// The same for one of several members that one process runs: the nodes of `forebay mount --nodes`. forebay_connect() takes the
/// lowest.
///
/// # Safety
/// As forebay_connect().
#[unsafe(no_mangle)]
pub unsafe extern "C" fn forebay_connect_member(
    store: *const c_char,
    member: u16,
    connection: *mut *mut Connection,
) -> c_int {
    status(|| {
        let connect = || {
            // SAFETY: a string, as the caller says.
            let store = unsafe { path(store) }?;
            let client = Client::connect_member(store, member)?;
            Ok(Connection { client })
        };
        // SAFETY: may be written, as the caller says.
        unsafe { give(connection, connect) }
    })
}

/// Ends a connection. Files, directories and teams of it live on; the last of them to end closes it.
///
/// # Safety
/// `connection` is null or from forebay_connect(), and is not used afterwards.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn forebay_disconnect(connection: *mut Connection) -> c_int {
    status(|| {
        // SAFETY: as the caller says.
        drop(unsafe { take(connection) });
        Ok(())
    })
}

/// Looks how much room the whole service has.
///
/// # Safety
/// `connection` is from forebay_connect(); `space` may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn forebay_statfs(connection: *const Connection, space: *mut Space) -> c_int {
    status(|| {
        // SAFETY: as the caller says.
        let (client, space) = unsafe { (client(connection)?, exclusive(space)?) };
        let found = client.space()?;
        *space = Space {
            total: found.total,
            free: found.free,
        };
        Ok(())
    })
}
