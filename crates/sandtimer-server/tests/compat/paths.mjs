// Files at every path of a sandbox, by the package's own classes.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";

import { api, client, sandbox } from "./sandbox.mjs";

export const paths = {
  async paths_of_a_container() {
    const box = sandbox("paths");
    const other = sandbox("paths-of-another");
    // What the sandbox's user may write, by the routes and by commands.
    for (const directory of ["/home/user", "/tmp", "/var/tmp", "/workspace", "/home/user/a/b c/ä"]) {
      const [mine, theirs] = [`${directory}/by-route`, `${directory}/by-command`];
      await box.writeFile(mine, `${mine}\n`);
      assert.equal((await box.exec(`cat '${mine}'; stat -c %U '${mine}'; echo said > '${theirs}'`)).stdout, `${mine}\nuser`);
      assert.equal((await box.readFile(theirs)).content, "said\n");
      assert.equal((await box.exists(theirs)).exists, true);
      assert.equal((await api.collectFile(await box.readFileStream(theirs))).content, "said\n");
      const listed = await box.listFiles(directory, { includeHidden: true });
      assert.ok(listed.files.some((file) => file.absolutePath === mine && file.name === "by-route"), directory);
      assert.equal((await other.exists(mine)).exists, false, "another sandbox");
    }
    const run = (command) => client("paths").commands.execute(command, "__DISABLE_SESSION__");
    assert.equal((await run("cat /home/user/by-command")).stdout, "said");
    const proc = await box.startProcess("cat /var/tmp/by-command; echo of a process > /home/user/process");
    await proc.waitForExit(20_000);
    assert.deepEqual([(await proc.getLogs()).stdout, (await box.readFile("/home/user/process")).content],
      ["said\n", "of a process\n"]);
    for (const language of ["python", "javascript"]) {
      const context = await box.createCodeContext({ language });
      const read = language === "python"
        ? "open('/home/user/by-route').read()" : "require('fs').readFileSync('/home/user/by-route', 'utf8')";
      assert.match((await box.runCode(read, { context })).results[0].text, /by-route/);
    }
    // What only root of a container may: both ways agree.
    for (const path of ["/opt/new", "/usr/new", "/new", "/etc/new", "/root/new"]) {
      await assert.rejects(() => box.writeFile(path, "x"), (error) => error.code === "PERMISSION_DENIED", path);
      assert.notEqual((await box.exec(`touch ${path}`)).exitCode, 0, path);
      assert.equal((await box.exists(path)).exists, false, path);
    }
    assert.equal((await box.readFile("/etc/passwd")).content, `${(await box.exec("cat /etc/passwd")).stdout}\n`);
    assert.ok((await box.listFiles("/")).files.some((file) => file.absolutePath === "/etc"));
    assert.ok((await box.listFiles("/usr/bin")).files.some((file) => file.absolutePath === "/usr/bin/env"));
    // Directories, hidden files, and moves from one directory to another.
    await box.mkdir("/home/user/made/deep", { recursive: true });
    await box.exec("touch /home/user/made/.hidden /home/user/made/shown");
    const names = async (options) => (await box.listFiles("/home/user/made", options)).files.map((file) => file.relativePath);
    assert.deepEqual(await names({}), ["deep", "shown"]);
    assert.deepEqual(await names({ includeHidden: true, recursive: true }), [".hidden", "deep", "shown"]);
    await box.renameFile("/home/user/made/shown", "/var/tmp/renamed");
    await box.moveFile("/var/tmp/renamed", "/tmp/moved");
    await box.moveFile("/home/user/made", "/workspace/made");
    assert.equal((await box.exec("ls -A /workspace/made; ls /tmp/moved; ls /home/user/made")).stdout, ".hidden\ndeep\n/tmp/moved");
    await box.deleteFile("/tmp/moved");
    assert.equal((await box.exec("ls /tmp/moved")).exitCode, 2);
    // Links lead where commands see them lead.
    await box.exec("cd /tmp; ln -s /home/user home; ln -s /etc/passwd out; ln -s ../../../../../../etc up; ln -s /proc/self/environ proc; " +
      "ln -s ring ring; ln -s /tmp/made-by-link dangling");
    assert.equal((await box.readFile("/tmp/home/by-command")).content, "said\n");
    assert.equal((await box.readFile("/tmp/out")).content, (await box.readFile("/etc/passwd")).content);
    assert.equal((await box.readFile("/tmp/up/passwd")).content, (await box.readFile("/etc/passwd")).content);
    await box.writeFile("/tmp/home/through", "linked");
    await box.writeFile("/tmp/dangling", "made");
    assert.equal((await box.exec("cat /home/user/through /tmp/made-by-link")).stdout, "linkedmade");
    // None of them leads out of the sandbox, whose passwd is not the host's.
    assert.notEqual((await box.readFile("/tmp/up/passwd")).content, readFileSync("/etc/passwd", "utf8"));
    for (const path of ["/tmp/proc", "/tmp/ring", "/proc/self/environ", "/dev/null", "/sys/kernel", "/tmp/../etc/passwd", "/tmp/up/../x"]) {
      await assert.rejects(() => box.readFile(path), (error) => ["PERMISSION_DENIED", "FILE_NOT_FOUND"].includes(error.code), path);
    }
    await assert.rejects(() => box.deleteFile("/usr"));
    await assert.rejects(() => box.moveFile("/etc", "/tmp/etc"));
    await assert.rejects(() => other.readFile("/home/user/by-route"), (error) => error.code === "FILE_NOT_FOUND");
  },

  async clones_of_an_allowed_host() {
    const { SANDTIMER_TEST_HOST: host, SANDTIMER_TEST_REPOSITORY: url } = process.env;
    const box = sandbox("allowed", { network: `pypi.org, ${host}` });
    await box.gitCheckout(url, { targetDir: "/home/user/clone" });
    assert.equal((await box.readFile("/home/user/clone/file")).content, "committed\n");
    const proc = await box.startProcess(`git ls-remote ${url} HEAD`);
    assert.equal((await proc.waitForExit(20_000)).exitCode, 0);
    // It keeps its list: without the header as well, and against another one.
    assert.equal((await sandbox("allowed").exec(`git ls-remote ${url} HEAD`)).exitCode, 0);
    await assert.rejects(() => sandbox("allowed", { network: "pypi.org" }).exec("true"),
      (error) => error.code === "VALIDATION_FAILED" && error.message.startsWith("X-Sandbox-Network"));
    await assert.rejects(() => sandbox("none", { network: "http://x/" }).exec("true"), (error) => error.code === "VALIDATION_FAILED");
    for (const network of [undefined, "none", "pypi.org"]) {
      await assert.rejects(() => sandbox(`not-allowed-${network}`, { network }).gitCheckout(url, { targetDir: "/tmp/c" }),
        (error) => error.code === "GIT_NETWORK_ERROR", network);
    }
  },

  async paths_of_another_token() {
    const box = sandbox("paths");
    for (const path of ["/home/user/by-route", "/tmp/by-route", "/workspace/by-route"]) {
      assert.equal((await box.exists(path)).exists, false, path);
    }
    assert.equal((await box.exec("ls -A /home/user /tmp /workspace | grep by-")).exitCode, 1);
  },
};
