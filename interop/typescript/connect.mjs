// What to speak and where the server is, from the command line: `modern` or `legacy`, and then `http URL`, or `stdio PROGRAM
// ARGUMENT...`, which starts one.
export const [era, kind, first, ...rest] = process.argv.slice(2);

/** The revision that an era ends or begins with. */
export const revision = { modern: '2026-07-28', legacy: '2025-11-25' }[era];

/** The transport for it, made of the classes that an SDK has for the two. */
export function transport(Http, Stdio) {
    return kind === 'http' ? new Http(new URL(first)) : new Stdio({ command: first, args: rest });
}
