/** Workspaces, and the files in them, from outside of the runs that work there. */

import { joined } from "./bytes.js";
import type { Content, Http } from "./http.js";
import { query } from "./run.js";
import type { components } from "./openapi.js";
import type { ArchiveUnpacked, FileAppended, FileChange, FileEntry, FileWritten, Waitable, WorkspaceDetails } from "./types.js";

/** By which id a workspace or a sandbox is found. */
type Address = { readonly workspace: string } | { readonly context: string } | { readonly session: string } | { readonly sandbox: string };

/** The files of one workspace or sandbox. Paths are relative to it, or below /workspace; in a sandbox any absolute path. */
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

  /** Returns the bytes of a file, or of a part of it. */
  async read(path: string, options: Waitable & { readonly offset?: number; readonly length?: number } = {}): Promise<Uint8Array> {
    return joined(this.stream(path, options));
  }

  /** Returns the text of a file. Bytes that are not UTF-8 are replaced. */
  async readText(path: string, options: Waitable = {}): Promise<string> {
    return new TextDecoder().decode(await this.read(path, options));
  }

  /** Iterates over the bytes of a file, as they arrive. */
  stream(path: string, options: Waitable & { readonly offset?: number; readonly length?: number } = {}): AsyncGenerator<Uint8Array, void, undefined> {
    const { signal, ...asked } = options;
    return this.#http.bytes(this.#at("", { path, ...asked }), signal);
  }

  /** Iterates over the bytes of a tar archive of a directory: files, directories and links. At most 200,000 entries and 4 GiB. */
  archive(path = ".", { signal }: Waitable = {}): AsyncGenerator<Uint8Array, void, undefined> {
    return this.#http.bytes(this.#at("/tar", { path }), signal);
  }

  /**
   * Unpacks a tar archive into a directory, which `parents` makes. Its files and links replace those of the same names. Nothing is changed
   * if a member leaves the directory or is not a file, directory or link; `links: "keep"` makes links that leave it.
   */
  extract(
    archive: Content,
    path = ".",
    { signal, ...asked }: Waitable & { readonly parents?: boolean; readonly links?: "inside" | "keep" } = {},
  ): Promise<ArchiveUnpacked> {
    return this.#http.put(this.#at("/tar", { path, ...asked }), archive, signal);
  }

  /** Writes a file, which is replaced as a whole. `mode`: permission bits, such as "0644". */
  write(
    path: string,
    content: Content,
    options: Waitable & { readonly parents?: boolean; readonly create_only?: boolean; readonly mode?: string } = {},
  ): Promise<FileWritten> {
    const { signal, ...asked } = options;
    return this.#http.put(this.#at("", { path, ...asked }), content, signal);
  }

  /** Appends to a file. */
  append(path: string, content: Content, options: Waitable & { readonly create?: boolean } = {}): Promise<FileAppended> {
    const { signal, ...asked } = options;
    return this.#http.postContent(this.#at("/append", { path, ...asked }), content, signal);
  }

  /** Iterates over the entries of a directory, in the order of their names. Pages are requested when they are needed. */
  async *list(path = ".", { signal, ...asked }: Waitable & { readonly recursive?: boolean } = {}): AsyncGenerator<FileEntry, void, undefined> {
    let after: string | undefined;
    do {
      const page = await this.#http.get<components["schemas"]["FileListing"]>(this.#at("/list", { path, after, ...asked }), signal);
      yield* page.entries;
      after = page.next_after ?? undefined;
    } while (after !== undefined);
  }

  /** Returns the entry of a path. A link is not followed. */
  stat(path: string, { signal }: Waitable = {}): Promise<FileEntry> {
    return this.#http.get(this.#at("/stat", { path }), signal);
  }

  /** Moves a file or a directory. */
  move(from: string, to: string, options: { readonly overwrite?: boolean } = {}): Promise<FileEntry> {
    return this.#http.post("/v1/files/move", { ...this.#address, from, to, ...options });
  }

  /** Makes a directory. With `parents` missing ones above it are made too, and it may exist. */
  mkdir(path: string, options: { readonly parents?: boolean } = {}): Promise<FileEntry> {
    return this.#http.post("/v1/files/mkdir", { ...this.#address, path, ...options });
  }

  /** Deletes a file, a link, an empty directory, or with `recursive` any directory. */
  delete(path: string, options: { readonly recursive?: boolean } = {}): Promise<void> {
    return this.#http.delete(this.#at("", { path, ...options }));
  }

  /**
   * Iterates over the changes in a directory, with `recursive` also below it, after "ready". "unwatched" names a directory whose
   * events are missing. It ends with the directory. Events are not stored for a reader whose connection breaks (`UnreachableError`): list
   * the directory again.
   */
  async *watch(path = ".", { signal, ...asked }: Waitable & { readonly recursive?: boolean } = {}): AsyncGenerator<FileChange, void, undefined> {
    for await (const { event, data } of this.#http.changes(this.#at("/watch", { path, ...asked }), signal)) {
      yield { event, ...(JSON.parse(data) as object) } as FileChange;
    }
  }
}

/** A workspace of a server. It exists until it is deleted. */
export class Workspace {
  readonly #http: Http;
  readonly #path: string;
  /** The files of the workspace. */
  readonly files: Files;

  /** @internal */
  constructor(
    http: Http,
    /** The id of the workspace. */
    readonly id: string,
  ) {
    this.#http = http;
    this.#path = `/v1/workspaces/${encodeURIComponent(id)}`;
    this.files = new Files(http, { workspace: id });
  }

  /** Returns the state of the workspace, with its size. */
  info({ signal }: Waitable = {}): Promise<WorkspaceDetails> {
    return this.#http.get(this.#path, signal);
  }

  /** Deletes the workspace and all that is in it. */
  delete(): Promise<void> {
    return this.#http.delete(this.#path);
  }
}
