/** Workspaces, and the files in them, from outside of the runs that work there. */

import { joined } from "./bytes.js";
import type { Content, Http } from "./http.js";
import { query } from "./run.js";
import type { components } from "./openapi.js";
import type { ArchiveUnpacked, FileAppended, FileChange, FileEntry, FileWritten, Waitable, WorkspaceDetails } from "./types.js";

/** By which id a workspace is found. */
type Address = { readonly workspace: string } | { readonly context: string } | { readonly session: string };

/** The files of one workspace. Paths are relative to it, or below /workspace. */
export class Files {
  readonly #http: Http;
  readonly #address: Address;

  /** @internal */
  constructor(http: Http, address: Address) {
    this.#http = http;
    this.#address = address;
  }

  #at(what: string, asked: Readonly<Record<string, string | number | boolean | undefined>>): string {
    return `/v1/files${what}${query({ ...this.#address, ...asked })}`;
  }

  /** The bytes of a file, or of a part of it. */
  async read(path: string, options: Waitable & { readonly offset?: number; readonly length?: number } = {}): Promise<Uint8Array> {
    return joined(this.stream(path, options));
  }

  /** A file's text. What is no UTF-8 is replaced. */
  async readText(path: string, options: Waitable = {}): Promise<string> {
    return new TextDecoder().decode(await this.read(path, options));
  }

  /** The bytes of a file, as they come. */
  stream(path: string, options: Waitable & { readonly offset?: number; readonly length?: number } = {}): AsyncGenerator<Uint8Array, void, undefined> {
    const { signal, ...asked } = options;
    return this.#http.bytes(this.#at("", { path, ...asked }), signal);
  }

  /** A directory as a tar archive, as its bytes come: files, directories and links. At most 200,000 of them and 4 GiB. */
  archive(path = ".", { signal }: Waitable = {}): AsyncGenerator<Uint8Array, void, undefined> {
    return this.#http.bytes(this.#at("/tar", { path }), signal);
  }

  /**
   * Unpacks a tar archive into a directory, which `parents` makes. Its files and links replace those of the same names. Nothing is changed
   * where a member leaves the directory or is not a file, directory or link; `links: "keep"` also takes links that lead out.
   */
  extract(
    archive: Content,
    path = ".",
    { signal, ...asked }: Waitable & { readonly parents?: boolean; readonly links?: "inside" | "keep" } = {},
  ): Promise<ArchiveUnpacked> {
    return this.#http.put(this.#at("/tar", { path, ...asked }), archive, signal);
  }

  /** Replaces a file, at once and as a whole, or makes it. `mode`: permission bits, such as "0644". */
  write(
    path: string,
    content: Content,
    options: Waitable & { readonly parents?: boolean; readonly create_only?: boolean; readonly mode?: string } = {},
  ): Promise<FileWritten> {
    const { signal, ...asked } = options;
    return this.#http.put(this.#at("", { path, ...asked }), content, signal);
  }

  /** Adds to the end of a file. */
  append(path: string, content: Content, options: Waitable & { readonly create?: boolean } = {}): Promise<FileAppended> {
    const { signal, ...asked } = options;
    return this.#http.postContent(this.#at("/append", { path, ...asked }), content, signal);
  }

  /** What is in a directory, in the order of names: page after page, as it is asked for. */
  async *list(path = ".", { signal, ...asked }: Waitable & { readonly recursive?: boolean } = {}): AsyncGenerator<FileEntry, void, undefined> {
    let after: string | undefined;
    do {
      const page = await this.#http.get<components["schemas"]["FileListing"]>(this.#at("/list", { path, after, ...asked }), signal);
      yield* page.entries;
      after = page.next_after ?? undefined;
    } while (after !== undefined);
  }

  /** What is at a path; a link is not followed. */
  stat(path: string, { signal }: Waitable = {}): Promise<FileEntry> {
    return this.#http.get(this.#at("/stat", { path }), signal);
  }

  /** Moves a file or a directory. */
  move(from: string, to: string, options: { readonly overwrite?: boolean } = {}): Promise<FileEntry> {
    return this.#http.post("/v1/files/move", { ...this.#address, from, to, ...options });
  }

  /** Makes a directory; with `parents` those on the way as well, and it may be there. */
  mkdir(path: string, options: { readonly parents?: boolean } = {}): Promise<FileEntry> {
    return this.#http.post("/v1/files/mkdir", { ...this.#address, path, ...options });
  }

  /** Deletes a file, a link, an empty directory, or with `recursive` any directory. */
  delete(path: string, options: { readonly recursive?: boolean } = {}): Promise<void> {
    return this.#http.delete(this.#at("", { path, ...options }));
  }

  /**
   * What changes in a directory, with `recursive` also in all below it, after "ready". Of a tree, "unwatched" names a directory whose
   * events do not come. It ends with the directory. Nothing is kept for a reader whose connection breaks (`UnreachableError`): list
   * the directory again.
   */
  async *watch(path = ".", { signal, ...asked }: Waitable & { readonly recursive?: boolean } = {}): AsyncGenerator<FileChange, void, undefined> {
    for await (const { event, data } of this.#http.changes(this.#at("/watch", { path, ...asked }), signal)) {
      yield { event, ...(JSON.parse(data) as object) } as FileChange;
    }
  }
}

/** A workspace of the server's, by its id. It stays until it is deleted. */
export class Workspace {
  readonly #http: Http;
  readonly #path: string;
  readonly files: Files;

  /** @internal */
  constructor(
    http: Http,
    readonly id: string,
  ) {
    this.#http = http;
    this.#path = `/v1/workspaces/${encodeURIComponent(id)}`;
    this.files = new Files(http, { workspace: id });
  }

  /** What is known of it, with its size. */
  info({ signal }: Waitable = {}): Promise<WorkspaceDetails> {
    return this.#http.get(this.#path, signal);
  }

  /** Deletes it and all that is in it. */
  delete(): Promise<void> {
    return this.#http.delete(this.#path);
  }
}
