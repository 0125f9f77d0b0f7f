// Where the server is, from the command line: `http URL`, or `stdio PROGRAM ARGUMENT...`, which starts one.
const [kind, first, ...rest] = process.argv.slice(2);

/** The transport for it, made of the classes that an SDK has for the two. */
export function transport(Http, Stdio) {
    return kind === 'http' ? new Http(new URL(first)) : new Stdio({ command: first, args: rest });
}
