# Print an optspec for argparse to handle cmd's options that are independent of any subcommand.
function __fish_sandtimer_global_optspecs
    string join \n h/help V/version
end

function __fish_sandtimer_needs_command
    # Figure out if the current invocation already has a command.
    set -l cmd (commandline -opc)
    set -e cmd[1]
    argparse -s (__fish_sandtimer_global_optspecs) -- $cmd 2>/dev/null
    or return
    if set -q argv[1]
        # Also print the command, so this can be used to figure out what it is.
        echo $argv[1]
        return 1
    end
    return 0
end

function __fish_sandtimer_using_subcommand
    set -l cmd (__fish_sandtimer_needs_command)
    test -z "$cmd"
    and return 1
    contains -- $cmd[1] $argv
end

complete -c sandtimer -n "__fish_sandtimer_needs_command" -s h -l help -d 'Print help'
complete -c sandtimer -n "__fish_sandtimer_needs_command" -s V -l version -d 'Print version'
complete -c sandtimer -n "__fish_sandtimer_needs_command" -f -a "run" -d 'Run a command in a sandbox, under limits'
complete -c sandtimer -n "__fish_sandtimer_needs_command" -f -a "python" -d 'Run a Python file, or code given with -c, in a sandbox'
complete -c sandtimer -n "__fish_sandtimer_needs_command" -f -a "bash" -d 'Run a bash script, or code given with -c, in a sandbox'
complete -c sandtimer -n "__fish_sandtimer_needs_command" -f -a "node" -d 'Run a JavaScript file, or code given with -c, in a sandbox, with Node.js'
complete -c sandtimer -n "__fish_sandtimer_needs_command" -f -a "ts" -d 'Run a TypeScript file, or code given with -c, in a sandbox, with Node.js'
complete -c sandtimer -n "__fish_sandtimer_needs_command" -f -a "bwrap" -d 'Run a command in what bubblewrap\'s options ask for, under limits; also when started as `bwrap`'
complete -c sandtimer -n "__fish_sandtimer_needs_command" -f -a "serve" -d 'Serve runs over HTTP'
complete -c sandtimer -n "__fish_sandtimer_needs_command" -f -a "mcp" -d 'Give an agent tools over stdin and stdout, by the Model Context Protocol'
complete -c sandtimer -n "__fish_sandtimer_needs_command" -f -a "jobs" -d 'Submit durable jobs, execute them, and read their results'
complete -c sandtimer -n "__fish_sandtimer_needs_command" -f -a "jupyter" -d 'Install a Jupyter kernel that runs in a sandbox'
complete -c sandtimer -n "__fish_sandtimer_needs_command" -f -a "ps" -d 'List the runs, contexts and sessions of a server'
complete -c sandtimer -n "__fish_sandtimer_needs_command" -f -a "logs" -d 'Print the output of a run of a server'
complete -c sandtimer -n "__fish_sandtimer_needs_command" -f -a "kill" -d 'End a run of a server, or a context or session'
complete -c sandtimer -n "__fish_sandtimer_needs_command" -f -a "extend" -d 'Extend the wall-clock limit of a run of a server'
complete -c sandtimer -n "__fish_sandtimer_needs_command" -f -a "pause" -d 'Pause a run of a server: its processes and its clocks stop'
complete -c sandtimer -n "__fish_sandtimer_needs_command" -f -a "resume" -d 'Resume a paused run of a server'
complete -c sandtimer -n "__fish_sandtimer_needs_command" -f -a "sandbox" -d 'Make, use and delete sandboxes of a server: file systems that outlive the runs in them'
complete -c sandtimer -n "__fish_sandtimer_needs_command" -f -a "template" -d 'List and delete templates, which sandboxes are made from'
complete -c sandtimer -n "__fish_sandtimer_needs_command" -f -a "estimate" -d 'Estimate how long a task or a command takes'
complete -c sandtimer -n "__fish_sandtimer_needs_command" -f -a "progress" -d 'Report the progress of a run from inside it'
complete -c sandtimer -n "__fish_sandtimer_needs_command" -f -a "doctor" -d 'Show what this machine can enforce, and what is missing'
complete -c sandtimer -n "__fish_sandtimer_needs_command" -f -a "bench" -d 'Measure on this machine how late limits fire and what a sandbox costs'
complete -c sandtimer -n "__fish_sandtimer_needs_command" -f -a "config" -d 'Show the settings that apply here'
complete -c sandtimer -n "__fish_sandtimer_needs_command" -f -a "completions" -d 'Print completions for a shell'
complete -c sandtimer -n "__fish_sandtimer_needs_command" -f -a "read-typescript" -d 'Read TypeScript from stdin, for an engine'
complete -c sandtimer -n "__fish_sandtimer_needs_command" -f -a "generate" -d 'Write the manual page, completions and references'
complete -c sandtimer -n "__fish_sandtimer_using_subcommand run" -l wall -l timeout -d 'Wall-clock limit, such as 2s or 1h30m; a bare number is seconds, 0 or `unlimited` means no limit' -r
complete -c sandtimer -n "__fish_sandtimer_using_subcommand run" -l cpu -d 'Processor time of all its processes together' -r
complete -c sandtimer -n "__fish_sandtimer_using_subcommand run" -l stall -d 'Longest time without output and without CPU use, or as set by --stall-by' -r
complete -c sandtimer -n "__fish_sandtimer_using_subcommand run" -l grace -d 'Time between SIGTERM and the kill' -r
complete -c sandtimer -n "__fish_sandtimer_using_subcommand run" -l memory -d 'Memory of all its processes together, such as 512M' -r
complete -c sandtimer -n "__fish_sandtimer_using_subcommand run" -l processes -d 'Processes and threads alive at once' -r
complete -c sandtimer -n "__fish_sandtimer_using_subcommand run" -l output -d 'Bytes of stdout and of stderr that are passed through; the rest is dropped and reported' -r
complete -c sandtimer -n "__fish_sandtimer_using_subcommand run" -l disk -d 'Bytes in its private directories and, polled, in its workspaces' -r
complete -c sandtimer -n "__fish_sandtimer_using_subcommand run" -l open-files -d 'Open files of each of its processes' -r
complete -c sandtimer -n "__fish_sandtimer_using_subcommand run" -l on-output-limit -d 'What happens at the output limit' -r -f -a "drop\t'Drop the rest; the run continues'
end\t'End the run'"
complete -c sandtimer -n "__fish_sandtimer_using_subcommand run" -l warn -d 'Warn the run this long before its wall or cpu limit, such as 30s:USR1: by the signal, which is sent to its processes that handle it; with --progress-channel also by a line on the descriptor that SANDTIMER_NOTICE_FD names' -r
complete -c sandtimer -n "__fish_sandtimer_using_subcommand run" -l stall-by -d 'What resets the stall limit; `progress` needs --progress-channel or --json, because output is not read otherwise' -r -f -a "output\t'Output, or CPU use'
progress\t'Only progress, which the run reports or which its output shows'"
complete -c sandtimer -n "__fish_sandtimer_using_subcommand run" -l workspace -d 'Show this directory, writable and at its own path; may be repeated' -r -f -a "(__fish_complete_directories)"
complete -c sandtimer -n "__fish_sandtimer_using_subcommand run" -l cwd -d 'Start in this directory' -r -f -a "(__fish_complete_directories)"
complete -c sandtimer -n "__fish_sandtimer_using_subcommand run" -l config -d 'Read the settings of this file in place of your own sandtimer.toml' -r -F
complete -c sandtimer -n "__fish_sandtimer_using_subcommand run" -l env -d 'Set a variable, or pass on one of yours; may be repeated' -r
complete -c sandtimer -n "__fish_sandtimer_using_subcommand run" -l require -d 'Refuse to run with less than this tier (T0–T3) or kill class (K0–K3); may be repeated' -r
complete -c sandtimer -n "__fish_sandtimer_using_subcommand run" -l errors -d 'How --json represents output that is not UTF-8' -r -f -a "strict\t'The stream is base64'
replace\t'Each sequence of bytes that is not UTF-8 becomes U+FFFD'"
complete -c sandtimer -n "__fish_sandtimer_using_subcommand run" -l without -d 'Leave out a layer, for tests; needs SANDTIMER_UNSAFE_TESTING=1' -r -f -a "seccomp\t''
landlock\t''
mount\t''
pid\t''
ipc\t''
net\t''
uid\t''
cgroup\t''
rlimits\t''"
complete -c sandtimer -n "__fish_sandtimer_using_subcommand run" -l progress-channel -d 'Give the run a descriptor, named by SANDTIMER_PROGRESS_FD, for reports of its progress: see `sandtimer progress`'
complete -c sandtimer -n "__fish_sandtimer_using_subcommand run" -l network -d 'Give the run the host\'s network'
complete -c sandtimer -n "__fish_sandtimer_using_subcommand run" -l show-credentials -d 'Show credentials (.ssh, .aws, .netrc, …) inside the directories that are shown; by default they are hidden'
complete -c sandtimer -n "__fish_sandtimer_using_subcommand run" -l json -d 'Capture the output and print one Outcome as JSON instead'
complete -c sandtimer -n "__fish_sandtimer_using_subcommand run" -s v -l verbose -d 'Report on stderr the limits and their origins, what was hidden, and which isolation layers are missing'
complete -c sandtimer -n "__fish_sandtimer_using_subcommand run" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c sandtimer -n "__fish_sandtimer_using_subcommand python" -s c -d 'Run this code instead of a file' -r
complete -c sandtimer -n "__fish_sandtimer_using_subcommand python" -l wall -l timeout -d 'Wall-clock limit, such as 2s or 1h30m; a bare number is seconds, 0 or `unlimited` means no limit' -r
complete -c sandtimer -n "__fish_sandtimer_using_subcommand python" -l cpu -d 'Processor time of all its processes together' -r
complete -c sandtimer -n "__fish_sandtimer_using_subcommand python" -l stall -d 'Longest time without output and without CPU use, or as set by --stall-by' -r
complete -c sandtimer -n "__fish_sandtimer_using_subcommand python" -l grace -d 'Time between SIGTERM and the kill' -r
complete -c sandtimer -n "__fish_sandtimer_using_subcommand python" -l memory -d 'Memory of all its processes together, such as 512M' -r
complete -c sandtimer -n "__fish_sandtimer_using_subcommand python" -l processes -d 'Processes and threads alive at once' -r
complete -c sandtimer -n "__fish_sandtimer_using_subcommand python" -l output -d 'Bytes of stdout and of stderr that are passed through; the rest is dropped and reported' -r
complete -c sandtimer -n "__fish_sandtimer_using_subcommand python" -l disk -d 'Bytes in its private directories and, polled, in its workspaces' -r
complete -c sandtimer -n "__fish_sandtimer_using_subcommand python" -l open-files -d 'Open files of each of its processes' -r
complete -c sandtimer -n "__fish_sandtimer_using_subcommand python" -l on-output-limit -d 'What happens at the output limit' -r -f -a "drop\t'Drop the rest; the run continues'
end\t'End the run'"
complete -c sandtimer -n "__fish_sandtimer_using_subcommand python" -l warn -d 'Warn the run this long before its wall or cpu limit, such as 30s:USR1: by the signal, which is sent to its processes that handle it; with --progress-channel also by a line on the descriptor that SANDTIMER_NOTICE_FD names' -r
complete -c sandtimer -n "__fish_sandtimer_using_subcommand python" -l stall-by -d 'What resets the stall limit; `progress` needs --progress-channel or --json, because output is not read otherwise' -r -f -a "output\t'Output, or CPU use'
progress\t'Only progress, which the run reports or which its output shows'"
complete -c sandtimer -n "__fish_sandtimer_using_subcommand python" -l workspace -d 'Show this directory, writable and at its own path; may be repeated' -r -f -a "(__fish_complete_directories)"
complete -c sandtimer -n "__fish_sandtimer_using_subcommand python" -l cwd -d 'Start in this directory' -r -f -a "(__fish_complete_directories)"
complete -c sandtimer -n "__fish_sandtimer_using_subcommand python" -l config -d 'Read the settings of this file in place of your own sandtimer.toml' -r -F
complete -c sandtimer -n "__fish_sandtimer_using_subcommand python" -l env -d 'Set a variable, or pass on one of yours; may be repeated' -r
complete -c sandtimer -n "__fish_sandtimer_using_subcommand python" -l require -d 'Refuse to run with less than this tier (T0–T3) or kill class (K0–K3); may be repeated' -r
complete -c sandtimer -n "__fish_sandtimer_using_subcommand python" -l errors -d 'How --json represents output that is not UTF-8' -r -f -a "strict\t'The stream is base64'
replace\t'Each sequence of bytes that is not UTF-8 becomes U+FFFD'"
complete -c sandtimer -n "__fish_sandtimer_using_subcommand python" -l without -d 'Leave out a layer, for tests; needs SANDTIMER_UNSAFE_TESTING=1' -r -f -a "seccomp\t''
landlock\t''
mount\t''
pid\t''
ipc\t''
net\t''
uid\t''
cgroup\t''
rlimits\t''"
complete -c sandtimer -n "__fish_sandtimer_using_subcommand python" -l progress-channel -d 'Give the run a descriptor, named by SANDTIMER_PROGRESS_FD, for reports of its progress: see `sandtimer progress`'
complete -c sandtimer -n "__fish_sandtimer_using_subcommand python" -l network -d 'Give the run the host\'s network'
complete -c sandtimer -n "__fish_sandtimer_using_subcommand python" -l show-credentials -d 'Show credentials (.ssh, .aws, .netrc, …) inside the directories that are shown; by default they are hidden'
complete -c sandtimer -n "__fish_sandtimer_using_subcommand python" -l json -d 'Capture the output and print one Outcome as JSON instead'
complete -c sandtimer -n "__fish_sandtimer_using_subcommand python" -s v -l verbose -d 'Report on stderr the limits and their origins, what was hidden, and which isolation layers are missing'
complete -c sandtimer -n "__fish_sandtimer_using_subcommand python" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c sandtimer -n "__fish_sandtimer_using_subcommand bash" -s c -d 'Run this code instead of a file' -r
complete -c sandtimer -n "__fish_sandtimer_using_subcommand bash" -l wall -l timeout -d 'Wall-clock limit, such as 2s or 1h30m; a bare number is seconds, 0 or `unlimited` means no limit' -r
complete -c sandtimer -n "__fish_sandtimer_using_subcommand bash" -l cpu -d 'Processor time of all its processes together' -r
complete -c sandtimer -n "__fish_sandtimer_using_subcommand bash" -l stall -d 'Longest time without output and without CPU use, or as set by --stall-by' -r
complete -c sandtimer -n "__fish_sandtimer_using_subcommand bash" -l grace -d 'Time between SIGTERM and the kill' -r
complete -c sandtimer -n "__fish_sandtimer_using_subcommand bash" -l memory -d 'Memory of all its processes together, such as 512M' -r
complete -c sandtimer -n "__fish_sandtimer_using_subcommand bash" -l processes -d 'Processes and threads alive at once' -r
complete -c sandtimer -n "__fish_sandtimer_using_subcommand bash" -l output -d 'Bytes of stdout and of stderr that are passed through; the rest is dropped and reported' -r
complete -c sandtimer -n "__fish_sandtimer_using_subcommand bash" -l disk -d 'Bytes in its private directories and, polled, in its workspaces' -r
complete -c sandtimer -n "__fish_sandtimer_using_subcommand bash" -l open-files -d 'Open files of each of its processes' -r
complete -c sandtimer -n "__fish_sandtimer_using_subcommand bash" -l on-output-limit -d 'What happens at the output limit' -r -f -a "drop\t'Drop the rest; the run continues'
end\t'End the run'"
complete -c sandtimer -n "__fish_sandtimer_using_subcommand bash" -l warn -d 'Warn the run this long before its wall or cpu limit, such as 30s:USR1: by the signal, which is sent to its processes that handle it; with --progress-channel also by a line on the descriptor that SANDTIMER_NOTICE_FD names' -r
complete -c sandtimer -n "__fish_sandtimer_using_subcommand bash" -l stall-by -d 'What resets the stall limit; `progress` needs --progress-channel or --json, because output is not read otherwise' -r -f -a "output\t'Output, or CPU use'
progress\t'Only progress, which the run reports or which its output shows'"
complete -c sandtimer -n "__fish_sandtimer_using_subcommand bash" -l workspace -d 'Show this directory, writable and at its own path; may be repeated' -r -f -a "(__fish_complete_directories)"
complete -c sandtimer -n "__fish_sandtimer_using_subcommand bash" -l cwd -d 'Start in this directory' -r -f -a "(__fish_complete_directories)"
complete -c sandtimer -n "__fish_sandtimer_using_subcommand bash" -l config -d 'Read the settings of this file in place of your own sandtimer.toml' -r -F
complete -c sandtimer -n "__fish_sandtimer_using_subcommand bash" -l env -d 'Set a variable, or pass on one of yours; may be repeated' -r
complete -c sandtimer -n "__fish_sandtimer_using_subcommand bash" -l require -d 'Refuse to run with less than this tier (T0–T3) or kill class (K0–K3); may be repeated' -r
complete -c sandtimer -n "__fish_sandtimer_using_subcommand bash" -l errors -d 'How --json represents output that is not UTF-8' -r -f -a "strict\t'The stream is base64'
replace\t'Each sequence of bytes that is not UTF-8 becomes U+FFFD'"
complete -c sandtimer -n "__fish_sandtimer_using_subcommand bash" -l without -d 'Leave out a layer, for tests; needs SANDTIMER_UNSAFE_TESTING=1' -r -f -a "seccomp\t''
landlock\t''
mount\t''
pid\t''
ipc\t''
net\t''
uid\t''
cgroup\t''
rlimits\t''"
complete -c sandtimer -n "__fish_sandtimer_using_subcommand bash" -l progress-channel -d 'Give the run a descriptor, named by SANDTIMER_PROGRESS_FD, for reports of its progress: see `sandtimer progress`'
complete -c sandtimer -n "__fish_sandtimer_using_subcommand bash" -l network -d 'Give the run the host\'s network'
complete -c sandtimer -n "__fish_sandtimer_using_subcommand bash" -l show-credentials -d 'Show credentials (.ssh, .aws, .netrc, …) inside the directories that are shown; by default they are hidden'
complete -c sandtimer -n "__fish_sandtimer_using_subcommand bash" -l json -d 'Capture the output and print one Outcome as JSON instead'
complete -c sandtimer -n "__fish_sandtimer_using_subcommand bash" -s v -l verbose -d 'Report on stderr the limits and their origins, what was hidden, and which isolation layers are missing'
complete -c sandtimer -n "__fish_sandtimer_using_subcommand bash" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c sandtimer -n "__fish_sandtimer_using_subcommand node" -s c -d 'Run this code instead of a file' -r
complete -c sandtimer -n "__fish_sandtimer_using_subcommand node" -l wall -l timeout -d 'Wall-clock limit, such as 2s or 1h30m; a bare number is seconds, 0 or `unlimited` means no limit' -r
complete -c sandtimer -n "__fish_sandtimer_using_subcommand node" -l cpu -d 'Processor time of all its processes together' -r
complete -c sandtimer -n "__fish_sandtimer_using_subcommand node" -l stall -d 'Longest time without output and without CPU use, or as set by --stall-by' -r
complete -c sandtimer -n "__fish_sandtimer_using_subcommand node" -l grace -d 'Time between SIGTERM and the kill' -r
complete -c sandtimer -n "__fish_sandtimer_using_subcommand node" -l memory -d 'Memory of all its processes together, such as 512M' -r
complete -c sandtimer -n "__fish_sandtimer_using_subcommand node" -l processes -d 'Processes and threads alive at once' -r
complete -c sandtimer -n "__fish_sandtimer_using_subcommand node" -l output -d 'Bytes of stdout and of stderr that are passed through; the rest is dropped and reported' -r
complete -c sandtimer -n "__fish_sandtimer_using_subcommand node" -l disk -d 'Bytes in its private directories and, polled, in its workspaces' -r
complete -c sandtimer -n "__fish_sandtimer_using_subcommand node" -l open-files -d 'Open files of each of its processes' -r
complete -c sandtimer -n "__fish_sandtimer_using_subcommand node" -l on-output-limit -d 'What happens at the output limit' -r -f -a "drop\t'Drop the rest; the run continues'
end\t'End the run'"
complete -c sandtimer -n "__fish_sandtimer_using_subcommand node" -l warn -d 'Warn the run this long before its wall or cpu limit, such as 30s:USR1: by the signal, which is sent to its processes that handle it; with --progress-channel also by a line on the descriptor that SANDTIMER_NOTICE_FD names' -r
complete -c sandtimer -n "__fish_sandtimer_using_subcommand node" -l stall-by -d 'What resets the stall limit; `progress` needs --progress-channel or --json, because output is not read otherwise' -r -f -a "output\t'Output, or CPU use'
progress\t'Only progress, which the run reports or which its output shows'"
complete -c sandtimer -n "__fish_sandtimer_using_subcommand node" -l workspace -d 'Show this directory, writable and at its own path; may be repeated' -r -f -a "(__fish_complete_directories)"
complete -c sandtimer -n "__fish_sandtimer_using_subcommand node" -l cwd -d 'Start in this directory' -r -f -a "(__fish_complete_directories)"
complete -c sandtimer -n "__fish_sandtimer_using_subcommand node" -l config -d 'Read the settings of this file in place of your own sandtimer.toml' -r -F
complete -c sandtimer -n "__fish_sandtimer_using_subcommand node" -l env -d 'Set a variable, or pass on one of yours; may be repeated' -r
complete -c sandtimer -n "__fish_sandtimer_using_subcommand node" -l require -d 'Refuse to run with less than this tier (T0–T3) or kill class (K0–K3); may be repeated' -r
complete -c sandtimer -n "__fish_sandtimer_using_subcommand node" -l errors -d 'How --json represents output that is not UTF-8' -r -f -a "strict\t'The stream is base64'
replace\t'Each sequence of bytes that is not UTF-8 becomes U+FFFD'"
complete -c sandtimer -n "__fish_sandtimer_using_subcommand node" -l without -d 'Leave out a layer, for tests; needs SANDTIMER_UNSAFE_TESTING=1' -r -f -a "seccomp\t''
landlock\t''
mount\t''
pid\t''
ipc\t''
net\t''
uid\t''
cgroup\t''
rlimits\t''"
complete -c sandtimer -n "__fish_sandtimer_using_subcommand node" -l progress-channel -d 'Give the run a descriptor, named by SANDTIMER_PROGRESS_FD, for reports of its progress: see `sandtimer progress`'
complete -c sandtimer -n "__fish_sandtimer_using_subcommand node" -l network -d 'Give the run the host\'s network'
complete -c sandtimer -n "__fish_sandtimer_using_subcommand node" -l show-credentials -d 'Show credentials (.ssh, .aws, .netrc, …) inside the directories that are shown; by default they are hidden'
complete -c sandtimer -n "__fish_sandtimer_using_subcommand node" -l json -d 'Capture the output and print one Outcome as JSON instead'
complete -c sandtimer -n "__fish_sandtimer_using_subcommand node" -s v -l verbose -d 'Report on stderr the limits and their origins, what was hidden, and which isolation layers are missing'
complete -c sandtimer -n "__fish_sandtimer_using_subcommand node" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c sandtimer -n "__fish_sandtimer_using_subcommand ts" -s c -d 'Run this code instead of a file' -r
complete -c sandtimer -n "__fish_sandtimer_using_subcommand ts" -l wall -l timeout -d 'Wall-clock limit, such as 2s or 1h30m; a bare number is seconds, 0 or `unlimited` means no limit' -r
complete -c sandtimer -n "__fish_sandtimer_using_subcommand ts" -l cpu -d 'Processor time of all its processes together' -r
complete -c sandtimer -n "__fish_sandtimer_using_subcommand ts" -l stall -d 'Longest time without output and without CPU use, or as set by --stall-by' -r
complete -c sandtimer -n "__fish_sandtimer_using_subcommand ts" -l grace -d 'Time between SIGTERM and the kill' -r
complete -c sandtimer -n "__fish_sandtimer_using_subcommand ts" -l memory -d 'Memory of all its processes together, such as 512M' -r
complete -c sandtimer -n "__fish_sandtimer_using_subcommand ts" -l processes -d 'Processes and threads alive at once' -r
complete -c sandtimer -n "__fish_sandtimer_using_subcommand ts" -l output -d 'Bytes of stdout and of stderr that are passed through; the rest is dropped and reported' -r
complete -c sandtimer -n "__fish_sandtimer_using_subcommand ts" -l disk -d 'Bytes in its private directories and, polled, in its workspaces' -r
complete -c sandtimer -n "__fish_sandtimer_using_subcommand ts" -l open-files -d 'Open files of each of its processes' -r
complete -c sandtimer -n "__fish_sandtimer_using_subcommand ts" -l on-output-limit -d 'What happens at the output limit' -r -f -a "drop\t'Drop the rest; the run continues'
end\t'End the run'"
complete -c sandtimer -n "__fish_sandtimer_using_subcommand ts" -l warn -d 'Warn the run this long before its wall or cpu limit, such as 30s:USR1: by the signal, which is sent to its processes that handle it; with --progress-channel also by a line on the descriptor that SANDTIMER_NOTICE_FD names' -r
complete -c sandtimer -n "__fish_sandtimer_using_subcommand ts" -l stall-by -d 'What resets the stall limit; `progress` needs --progress-channel or --json, because output is not read otherwise' -r -f -a "output\t'Output, or CPU use'
progress\t'Only progress, which the run reports or which its output shows'"
complete -c sandtimer -n "__fish_sandtimer_using_subcommand ts" -l workspace -d 'Show this directory, writable and at its own path; may be repeated' -r -f -a "(__fish_complete_directories)"
complete -c sandtimer -n "__fish_sandtimer_using_subcommand ts" -l cwd -d 'Start in this directory' -r -f -a "(__fish_complete_directories)"
complete -c sandtimer -n "__fish_sandtimer_using_subcommand ts" -l config -d 'Read the settings of this file in place of your own sandtimer.toml' -r -F
complete -c sandtimer -n "__fish_sandtimer_using_subcommand ts" -l env -d 'Set a variable, or pass on one of yours; may be repeated' -r
complete -c sandtimer -n "__fish_sandtimer_using_subcommand ts" -l require -d 'Refuse to run with less than this tier (T0–T3) or kill class (K0–K3); may be repeated' -r
complete -c sandtimer -n "__fish_sandtimer_using_subcommand ts" -l errors -d 'How --json represents output that is not UTF-8' -r -f -a "strict\t'The stream is base64'
replace\t'Each sequence of bytes that is not UTF-8 becomes U+FFFD'"
complete -c sandtimer -n "__fish_sandtimer_using_subcommand ts" -l without -d 'Leave out a layer, for tests; needs SANDTIMER_UNSAFE_TESTING=1' -r -f -a "seccomp\t''
landlock\t''
mount\t''
pid\t''
ipc\t''
net\t''
uid\t''
cgroup\t''
rlimits\t''"
complete -c sandtimer -n "__fish_sandtimer_using_subcommand ts" -l progress-channel -d 'Give the run a descriptor, named by SANDTIMER_PROGRESS_FD, for reports of its progress: see `sandtimer progress`'
complete -c sandtimer -n "__fish_sandtimer_using_subcommand ts" -l network -d 'Give the run the host\'s network'
complete -c sandtimer -n "__fish_sandtimer_using_subcommand ts" -l show-credentials -d 'Show credentials (.ssh, .aws, .netrc, …) inside the directories that are shown; by default they are hidden'
complete -c sandtimer -n "__fish_sandtimer_using_subcommand ts" -l json -d 'Capture the output and print one Outcome as JSON instead'
complete -c sandtimer -n "__fish_sandtimer_using_subcommand ts" -s v -l verbose -d 'Report on stderr the limits and their origins, what was hidden, and which isolation layers are missing'
complete -c sandtimer -n "__fish_sandtimer_using_subcommand ts" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c sandtimer -n "__fish_sandtimer_using_subcommand serve" -l listen -d 'The address to listen on [default: 127.0.0.1:7880], or unix:PATH; port 0 takes a free port' -r
complete -c sandtimer -n "__fish_sandtimer_using_subcommand serve" -l state-dir -d 'The directory of records [default: /var/lib/sandtimer for root, else ~/.local/state/sandtimer]' -r -f -a "(__fish_complete_directories)"
complete -c sandtimer -n "__fish_sandtimer_using_subcommand serve" -l token-file -d 'The clients that may use the server: lines of a name and a token' -r -F
complete -c sandtimer -n "__fish_sandtimer_using_subcommand serve" -l keep-runs -d 'How many ended runs are kept, at times up to a sixteenth more [default: 1000]; 0 or `unlimited` keeps all' -r
complete -c sandtimer -n "__fish_sandtimer_using_subcommand serve" -l keep-for -d 'How long ended runs are kept [default: 7d]' -r
complete -c sandtimer -n "__fish_sandtimer_using_subcommand serve" -l store -d 'A job store that is shared with other workers, instead of the state directory: nats://[USER:PASSWORD@]HOST[:PORT], tls://…, or a directory. SANDTIMER_NATS_CREDENTIALS and SANDTIMER_NATS_CA name files of credentials and certificates' -r -f
complete -c sandtimer -n "__fish_sandtimer_using_subcommand serve" -l job-slots -d 'How many jobs the server executes at a time [default: the number of processors]; 0 leaves them to `sandtimer jobs work`' -r
complete -c sandtimer -n "__fish_sandtimer_using_subcommand serve" -l job-files -d 'How many bytes of the files of a job are kept [default: 64M]' -r
complete -c sandtimer -n "__fish_sandtimer_using_subcommand serve" -l job-memory -d 'Memory for jobs that have a memory limit: as many run at a time as fit [default: 80 % of the machine\'s memory, or of the limit of the cgroup]; `unlimited` uses all slots' -r
complete -c sandtimer -n "__fish_sandtimer_using_subcommand serve" -l template -d 'A root tree, such as one that debootstrap has made, from which clients may make sandboxes by this name; may be repeated' -r
complete -c sandtimer -n "__fish_sandtimer_using_subcommand serve" -l drain -d 'How long jobs may continue after SIGTERM, while requests are still answered, before they are given back and the server ends [default: the 5s of open requests]; 0 and a second SIGTERM give them back at once' -r
complete -c sandtimer -n "__fish_sandtimer_using_subcommand serve" -l log -d 'The level of the log on stderr: off, error, warn, info (runs), debug (requests) or trace [default: warn]' -r
complete -c sandtimer -n "__fish_sandtimer_using_subcommand serve" -l log-format -d 'The format of the log: text or json [default: text]' -r
complete -c sandtimer -n "__fish_sandtimer_using_subcommand serve" -l interpreter-spawn-timeout-ms -d 'How long an interpreter or a shell may take to start [default: 60000]; cannot be disabled' -r
complete -c sandtimer -n "__fish_sandtimer_using_subcommand serve" -l interpreter-prewarm-timeout-ms -d 'How long a pre-warm script may take [default: 30000]; cannot be disabled' -r
complete -c sandtimer -n "__fish_sandtimer_using_subcommand serve" -l interpreter-execution-timeout-ms -d 'Wall-clock limit of code in contexts [default: 0, unlimited]' -r
complete -c sandtimer -n "__fish_sandtimer_using_subcommand serve" -l vm-execution-timeout-ms -d 'Wall-clock limit of JavaScript and TypeScript in contexts, in addition to that of all code [default: 0, unlimited]' -r
complete -c sandtimer -n "__fish_sandtimer_using_subcommand serve" -l command-timeout-ms -d 'Wall-clock limit of runs, and of commands in sessions [default: 0, unlimited]' -r
complete -c sandtimer -n "__fish_sandtimer_using_subcommand serve" -l max-output-size-bytes -d 'Bytes kept of stdout, and of stderr [default: 10485760]; 0 is unlimited' -r
complete -c sandtimer -n "__fish_sandtimer_using_subcommand serve" -l prewarm -d 'A script that interpreters of a language (python, javascript, bash) execute when they start; may be repeated' -r
complete -c sandtimer -n "__fish_sandtimer_using_subcommand serve" -l pool -d 'How many pre-warmed interpreters of a language each user of the server has [default: python=2, javascript=1]; may be repeated' -r
complete -c sandtimer -n "__fish_sandtimer_using_subcommand serve" -l private-webhooks -d 'Allow webhooks to loopback, private and link-local addresses'
complete -c sandtimer -n "__fish_sandtimer_using_subcommand serve" -l on-demand -d 'Start the server of this user in the background unless it is running, print the path of its socket, and exit; the server is that of `sandtimer mcp`, and ends 60 s after its last use'
complete -c sandtimer -n "__fish_sandtimer_using_subcommand serve" -l end-when-unused -d 'End when no client is connected and nothing runs; for the server that `sandtimer mcp` starts'
complete -c sandtimer -n "__fish_sandtimer_using_subcommand serve" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c sandtimer -n "__fish_sandtimer_using_subcommand mcp" -l wall -l timeout -d 'Wall-clock limit of everything that this connection starts, from now on' -r
complete -c sandtimer -n "__fish_sandtimer_using_subcommand mcp" -l turns -d 'How many calls that start code this connection may make' -r
complete -c sandtimer -n "__fish_sandtimer_using_subcommand mcp" -l stall -d 'Longest time that code which it started may neither write output nor use the processor' -r
complete -c sandtimer -n "__fish_sandtimer_using_subcommand mcp" -l workspace -d 'A directory that is shown, writable and at its own path, to everything that this connection starts; /workspace is a link to it' -r -f -a "(__fish_complete_directories)"
complete -c sandtimer -n "__fish_sandtimer_using_subcommand mcp" -l sandbox -d 'Make a sandbox of this template, such as `host`, in which everything that this connection starts works; it is deleted when the connection ends' -r
complete -c sandtimer -n "__fish_sandtimer_using_subcommand mcp" -l tools -d 'Which tool names are listed: `ours`, those that agents were `trained` on, or `both`; all of them can be called [default: SANDTIMER_MCP_TOOLS, else `both`]' -r
complete -c sandtimer -n "__fish_sandtimer_using_subcommand mcp" -l state-dir -d 'The directory of the server\'s records and socket [default: `mcp` in the directory of `serve`, which SANDTIMER_STATE_DIR sets too; without that the socket is in XDG_RUNTIME_DIR]' -r -f -a "(__fish_complete_directories)"
complete -c sandtimer -n "__fish_sandtimer_using_subcommand mcp" -l network -d 'Give everything that this connection starts the host\'s network, including loopback'
complete -c sandtimer -n "__fish_sandtimer_using_subcommand mcp" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c sandtimer -n "__fish_sandtimer_using_subcommand jobs; and not __fish_seen_subcommand_from submit run work list show log files get wait watch cancel retry redeliver requeue purge pause resume queues schedule schedules unschedule breakers workers" -s h -l help -d 'Print help'
complete -c sandtimer -n "__fish_sandtimer_using_subcommand jobs; and not __fish_seen_subcommand_from submit run work list show log files get wait watch cancel retry redeliver requeue purge pause resume queues schedule schedules unschedule breakers workers" -f -a "submit" -d 'Submit one job, or many from standard input'
complete -c sandtimer -n "__fish_sandtimer_using_subcommand jobs; and not __fish_seen_subcommand_from submit run work list show log files get wait watch cancel retry redeliver requeue purge pause resume queues schedule schedules unschedule breakers workers" -f -a "run" -d 'Submit a job, work on it here, and wait for its end'
complete -c sandtimer -n "__fish_sandtimer_using_subcommand jobs; and not __fish_seen_subcommand_from submit run work list show log files get wait watch cancel retry redeliver requeue purge pause resume queues schedule schedules unschedule breakers workers" -f -a "work" -d 'Execute jobs until SIGTERM or Ctrl-C'
complete -c sandtimer -n "__fish_sandtimer_using_subcommand jobs; and not __fish_seen_subcommand_from submit run work list show log files get wait watch cancel retry redeliver requeue purge pause resume queues schedule schedules unschedule breakers workers" -f -a "list" -d 'List jobs, the latest first'
complete -c sandtimer -n "__fish_sandtimer_using_subcommand jobs; and not __fish_seen_subcommand_from submit run work list show log files get wait watch cancel retry redeliver requeue purge pause resume queues schedule schedules unschedule breakers workers" -f -a "show" -d 'Show everything about jobs'
complete -c sandtimer -n "__fish_sandtimer_using_subcommand jobs; and not __fish_seen_subcommand_from submit run work list show log files get wait watch cancel retry redeliver requeue purge pause resume queues schedule schedules unschedule breakers workers" -f -a "log" -d 'Print the output of jobs'
complete -c sandtimer -n "__fish_sandtimer_using_subcommand jobs; and not __fish_seen_subcommand_from submit run work list show log files get wait watch cancel retry redeliver requeue purge pause resume queues schedule schedules unschedule breakers workers" -f -a "files" -d 'List the files of a job'
complete -c sandtimer -n "__fish_sandtimer_using_subcommand jobs; and not __fish_seen_subcommand_from submit run work list show log files get wait watch cancel retry redeliver requeue purge pause resume queues schedule schedules unschedule breakers workers" -f -a "get" -d 'Write a file of a job to standard output, or to a path'
complete -c sandtimer -n "__fish_sandtimer_using_subcommand jobs; and not __fish_seen_subcommand_from submit run work list show log files get wait watch cancel retry redeliver requeue purge pause resume queues schedule schedules unschedule breakers workers" -f -a "wait" -d 'Wait until jobs have ended; the exit code is the result'
complete -c sandtimer -n "__fish_sandtimer_using_subcommand jobs; and not __fish_seen_subcommand_from submit run work list show log files get wait watch cancel retry redeliver requeue purge pause resume queues schedule schedules unschedule breakers workers" -f -a "watch" -d 'Print the output of a job as it is written, or the progress of several, until they have ended'
complete -c sandtimer -n "__fish_sandtimer_using_subcommand jobs; and not __fish_seen_subcommand_from submit run work list show log files get wait watch cancel retry redeliver requeue purge pause resume queues schedule schedules unschedule breakers workers" -f -a "cancel" -d 'End jobs'
complete -c sandtimer -n "__fish_sandtimer_using_subcommand jobs; and not __fish_seen_subcommand_from submit run work list show log files get wait watch cancel retry redeliver requeue purge pause resume queues schedule schedules unschedule breakers workers" -f -a "retry" -d 'Queue jobs again that failed, are dead or were cancelled; their deadlines start again'
complete -c sandtimer -n "__fish_sandtimer_using_subcommand jobs; and not __fish_seen_subcommand_from submit run work list show log files get wait watch cancel retry redeliver requeue purge pause resume queues schedule schedules unschedule breakers workers" -f -a "redeliver" -d 'Send the webhooks of ended jobs again, at once'
complete -c sandtimer -n "__fish_sandtimer_using_subcommand jobs; and not __fish_seen_subcommand_from submit run work list show log files get wait watch cancel retry redeliver requeue purge pause resume queues schedule schedules unschedule breakers workers" -f -a "requeue" -d 'Queue all dead jobs again, as `retry` does'
complete -c sandtimer -n "__fish_sandtimer_using_subcommand jobs; and not __fish_seen_subcommand_from submit run work list show log files get wait watch cancel retry redeliver requeue purge pause resume queues schedule schedules unschedule breakers workers" -f -a "purge" -d 'Remove the records of ended jobs'
complete -c sandtimer -n "__fish_sandtimer_using_subcommand jobs; and not __fish_seen_subcommand_from submit run work list show log files get wait watch cancel retry redeliver requeue purge pause resume queues schedule schedules unschedule breakers workers" -f -a "pause" -d 'Pause a queue: workers get no more jobs from it; or a schedule: it submits no jobs'
complete -c sandtimer -n "__fish_sandtimer_using_subcommand jobs; and not __fish_seen_subcommand_from submit run work list show log files get wait watch cancel retry redeliver requeue purge pause resume queues schedule schedules unschedule breakers workers" -f -a "resume" -d 'Resume a paused queue or schedule'
complete -c sandtimer -n "__fish_sandtimer_using_subcommand jobs; and not __fish_seen_subcommand_from submit run work list show log files get wait watch cancel retry redeliver requeue purge pause resume queues schedule schedules unschedule breakers workers" -f -a "queues" -d 'Show every queue: its depth and how long the oldest job has waited'
complete -c sandtimer -n "__fish_sandtimer_using_subcommand jobs; and not __fish_seen_subcommand_from submit run work list show log files get wait watch cancel retry redeliver requeue purge pause resume queues schedule schedules unschedule breakers workers" -f -a "schedule" -d 'Store a schedule: a job that recurs, by a cron expression or at an interval'
complete -c sandtimer -n "__fish_sandtimer_using_subcommand jobs; and not __fish_seen_subcommand_from submit run work list show log files get wait watch cancel retry redeliver requeue purge pause resume queues schedule schedules unschedule breakers workers" -f -a "schedules" -d 'List the schedules of all owners, and when each is due next'
complete -c sandtimer -n "__fish_sandtimer_using_subcommand jobs; and not __fish_seen_subcommand_from submit run work list show log files get wait watch cancel retry redeliver requeue purge pause resume queues schedule schedules unschedule breakers workers" -f -a "unschedule" -d 'Remove a schedule; jobs that it has submitted stay'
complete -c sandtimer -n "__fish_sandtimer_using_subcommand jobs; and not __fish_seen_subcommand_from submit run work list show log files get wait watch cancel retry redeliver requeue purge pause resume queues schedule schedules unschedule breakers workers" -f -a "breakers" -d 'List the circuit breakers that jobs of all owners share'
complete -c sandtimer -n "__fish_sandtimer_using_subcommand jobs; and not __fish_seen_subcommand_from submit run work list show log files get wait watch cancel retry redeliver requeue purge pause resume queues schedule schedules unschedule breakers workers" -f -a "workers" -d 'Show every live worker: its slots, version, queues, handlers and jobs'
complete -c sandtimer -n "__fish_sandtimer_using_subcommand jobs; and __fish_seen_subcommand_from submit" -l time-scale -d 'A factor for every duration in the spec; SANDTIMER_TIME_SCALE sets it too' -r
complete -c sandtimer -n "__fish_sandtimer_using_subcommand jobs; and __fish_seen_subcommand_from submit" -l state-dir -d 'The directory of the store [default: /var/lib/sandtimer for root, else ~/.local/state/sandtimer]; SANDTIMER_STATE_DIR sets it too' -r -f -a "(__fish_complete_directories)"
complete -c sandtimer -n "__fish_sandtimer_using_subcommand jobs; and __fish_seen_subcommand_from submit" -l store -d 'The store: nats://[USER:PASSWORD@]HOST[:PORT], tls://…, or a directory as above; SANDTIMER_STORE sets it too. SANDTIMER_NATS_CREDENTIALS and SANDTIMER_NATS_CA name files of credentials and certificates' -r -f
complete -c sandtimer -n "__fish_sandtimer_using_subcommand jobs; and __fish_seen_subcommand_from submit" -l json -d 'Print JSON'
complete -c sandtimer -n "__fish_sandtimer_using_subcommand jobs; and __fish_seen_subcommand_from submit" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c sandtimer -n "__fish_sandtimer_using_subcommand jobs; and __fish_seen_subcommand_from run" -l time-scale -d 'A factor for every duration in the spec; SANDTIMER_TIME_SCALE sets it too' -r
complete -c sandtimer -n "__fish_sandtimer_using_subcommand jobs; and __fish_seen_subcommand_from run" -l state-dir -d 'The directory of the store [default: /var/lib/sandtimer for root, else ~/.local/state/sandtimer]; SANDTIMER_STATE_DIR sets it too' -r -f -a "(__fish_complete_directories)"
complete -c sandtimer -n "__fish_sandtimer_using_subcommand jobs; and __fish_seen_subcommand_from run" -l store -d 'The store: nats://[USER:PASSWORD@]HOST[:PORT], tls://…, or a directory as above; SANDTIMER_STORE sets it too. SANDTIMER_NATS_CREDENTIALS and SANDTIMER_NATS_CA name files of credentials and certificates' -r -f
complete -c sandtimer -n "__fish_sandtimer_using_subcommand jobs; and __fish_seen_subcommand_from run" -l errors -d 'How --json represents output that is not UTF-8' -r -f -a "strict\t'The stream is base64'
replace\t'Each sequence of bytes that is not UTF-8 becomes U+FFFD'"
complete -c sandtimer -n "__fish_sandtimer_using_subcommand jobs; and __fish_seen_subcommand_from run" -l json -d 'Print JSON'
complete -c sandtimer -n "__fish_sandtimer_using_subcommand jobs; and __fish_seen_subcommand_from run" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c sandtimer -n "__fish_sandtimer_using_subcommand jobs; and __fish_seen_subcommand_from work" -l slots -d 'Jobs at a time' -r
complete -c sandtimer -n "__fish_sandtimer_using_subcommand jobs; and __fish_seen_subcommand_from work" -l queue -d 'Only from this queue; may be repeated' -r
complete -c sandtimer -n "__fish_sandtimer_using_subcommand jobs; and __fish_seen_subcommand_from work" -l lease -d 'How long a job stays assigned to this worker after the last renewal [default: 30s]; at least 1s' -r
complete -c sandtimer -n "__fish_sandtimer_using_subcommand jobs; and __fish_seen_subcommand_from work" -l drain -d 'How long jobs may continue after SIGTERM before they are given back, 0 at once [default: unlimited]; SANDTIMER_DRAIN sets it too' -r
complete -c sandtimer -n "__fish_sandtimer_using_subcommand jobs; and __fish_seen_subcommand_from work" -l files -d 'How many bytes of the files of a job are kept [default: 64M]; SANDTIMER_JOB_FILES sets it too' -r
complete -c sandtimer -n "__fish_sandtimer_using_subcommand jobs; and __fish_seen_subcommand_from work" -l memory -d 'Memory for jobs that have a memory limit: as many run at a time as fit [default: 80 % of the machine\'s memory, or of the limit of the cgroup]; `unlimited` uses all slots; SANDTIMER_JOB_MEMORY sets it too' -r
complete -c sandtimer -n "__fish_sandtimer_using_subcommand jobs; and __fish_seen_subcommand_from work" -l state-dir -d 'The directory of the store [default: /var/lib/sandtimer for root, else ~/.local/state/sandtimer]; SANDTIMER_STATE_DIR sets it too' -r -f -a "(__fish_complete_directories)"
complete -c sandtimer -n "__fish_sandtimer_using_subcommand jobs; and __fish_seen_subcommand_from work" -l store -d 'The store: nats://[USER:PASSWORD@]HOST[:PORT], tls://…, or a directory as above; SANDTIMER_STORE sets it too. SANDTIMER_NATS_CREDENTIALS and SANDTIMER_NATS_CA name files of credentials and certificates' -r -f
complete -c sandtimer -n "__fish_sandtimer_using_subcommand jobs; and __fish_seen_subcommand_from work" -l private-webhooks -d 'Allow webhooks to loopback, private and link-local addresses; SANDTIMER_PRIVATE_WEBHOOKS=1 does it too'
complete -c sandtimer -n "__fish_sandtimer_using_subcommand jobs; and __fish_seen_subcommand_from work" -l json -d 'Print JSON'
complete -c sandtimer -n "__fish_sandtimer_using_subcommand jobs; and __fish_seen_subcommand_from work" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c sandtimer -n "__fish_sandtimer_using_subcommand jobs; and __fish_seen_subcommand_from list" -l most -d 'The maximum number of jobs' -r
complete -c sandtimer -n "__fish_sandtimer_using_subcommand jobs; and __fish_seen_subcommand_from list" -l cursor -d 'Continue an earlier listing at its `next`' -r
complete -c sandtimer -n "__fish_sandtimer_using_subcommand jobs; and __fish_seen_subcommand_from list" -l queue -d 'Only of this queue' -r
complete -c sandtimer -n "__fish_sandtimer_using_subcommand jobs; and __fish_seen_subcommand_from list" -l state -d 'Only in this state: scheduled, queued, running, ending, ok, failed, dead, cancelled; or leased, which is running and ending, or ended, which is ok and failed' -r
complete -c sandtimer -n "__fish_sandtimer_using_subcommand jobs; and __fish_seen_subcommand_from list" -l state-dir -d 'The directory of the store [default: /var/lib/sandtimer for root, else ~/.local/state/sandtimer]; SANDTIMER_STATE_DIR sets it too' -r -f -a "(__fish_complete_directories)"
complete -c sandtimer -n "__fish_sandtimer_using_subcommand jobs; and __fish_seen_subcommand_from list" -l store -d 'The store: nats://[USER:PASSWORD@]HOST[:PORT], tls://…, or a directory as above; SANDTIMER_STORE sets it too. SANDTIMER_NATS_CREDENTIALS and SANDTIMER_NATS_CA name files of credentials and certificates' -r -f
complete -c sandtimer -n "__fish_sandtimer_using_subcommand jobs; and __fish_seen_subcommand_from list" -l json -d 'Print JSON'
complete -c sandtimer -n "__fish_sandtimer_using_subcommand jobs; and __fish_seen_subcommand_from list" -s h -l help -d 'Print help'
complete -c sandtimer -n "__fish_sandtimer_using_subcommand jobs; and __fish_seen_subcommand_from show" -l errors -d 'How --json represents output that is not UTF-8' -r -f -a "strict\t'The stream is base64'
replace\t'Each sequence of bytes that is not UTF-8 becomes U+FFFD'"
complete -c sandtimer -n "__fish_sandtimer_using_subcommand jobs; and __fish_seen_subcommand_from show" -l state-dir -d 'The directory of the store [default: /var/lib/sandtimer for root, else ~/.local/state/sandtimer]; SANDTIMER_STATE_DIR sets it too' -r -f -a "(__fish_complete_directories)"
complete -c sandtimer -n "__fish_sandtimer_using_subcommand jobs; and __fish_seen_subcommand_from show" -l store -d 'The store: nats://[USER:PASSWORD@]HOST[:PORT], tls://…, or a directory as above; SANDTIMER_STORE sets it too. SANDTIMER_NATS_CREDENTIALS and SANDTIMER_NATS_CA name files of credentials and certificates' -r -f
complete -c sandtimer -n "__fish_sandtimer_using_subcommand jobs; and __fish_seen_subcommand_from show" -l json -d 'Print JSON'
complete -c sandtimer -n "__fish_sandtimer_using_subcommand jobs; and __fish_seen_subcommand_from show" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c sandtimer -n "__fish_sandtimer_using_subcommand jobs; and __fish_seen_subcommand_from log" -l errors -d 'How --json represents output that is not UTF-8' -r -f -a "strict\t'The stream is base64'
replace\t'Each sequence of bytes that is not UTF-8 becomes U+FFFD'"
complete -c sandtimer -n "__fish_sandtimer_using_subcommand jobs; and __fish_seen_subcommand_from log" -l state-dir -d 'The directory of the store [default: /var/lib/sandtimer for root, else ~/.local/state/sandtimer]; SANDTIMER_STATE_DIR sets it too' -r -f -a "(__fish_complete_directories)"
complete -c sandtimer -n "__fish_sandtimer_using_subcommand jobs; and __fish_seen_subcommand_from log" -l store -d 'The store: nats://[USER:PASSWORD@]HOST[:PORT], tls://…, or a directory as above; SANDTIMER_STORE sets it too. SANDTIMER_NATS_CREDENTIALS and SANDTIMER_NATS_CA name files of credentials and certificates' -r -f
complete -c sandtimer -n "__fish_sandtimer_using_subcommand jobs; and __fish_seen_subcommand_from log" -l timestamps -d 'Print before each line when the store received it, such as 2026-11-28T09:31:39.123Z; `-` if an earlier version stored it'
complete -c sandtimer -n "__fish_sandtimer_using_subcommand jobs; and __fish_seen_subcommand_from log" -l json -d 'Print JSON'
complete -c sandtimer -n "__fish_sandtimer_using_subcommand jobs; and __fish_seen_subcommand_from log" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c sandtimer -n "__fish_sandtimer_using_subcommand jobs; and __fish_seen_subcommand_from files" -l state-dir -d 'The directory of the store [default: /var/lib/sandtimer for root, else ~/.local/state/sandtimer]; SANDTIMER_STATE_DIR sets it too' -r -f -a "(__fish_complete_directories)"
complete -c sandtimer -n "__fish_sandtimer_using_subcommand jobs; and __fish_seen_subcommand_from files" -l store -d 'The store: nats://[USER:PASSWORD@]HOST[:PORT], tls://…, or a directory as above; SANDTIMER_STORE sets it too. SANDTIMER_NATS_CREDENTIALS and SANDTIMER_NATS_CA name files of credentials and certificates' -r -f
complete -c sandtimer -n "__fish_sandtimer_using_subcommand jobs; and __fish_seen_subcommand_from files" -l json -d 'Print JSON'
complete -c sandtimer -n "__fish_sandtimer_using_subcommand jobs; and __fish_seen_subcommand_from files" -s h -l help -d 'Print help'
complete -c sandtimer -n "__fish_sandtimer_using_subcommand jobs; and __fish_seen_subcommand_from get" -l out -d 'The path to write to; an existing file is replaced. `-` is standard output' -r -F
complete -c sandtimer -n "__fish_sandtimer_using_subcommand jobs; and __fish_seen_subcommand_from get" -l state-dir -d 'The directory of the store, as for the other commands' -r -f -a "(__fish_complete_directories)"
complete -c sandtimer -n "__fish_sandtimer_using_subcommand jobs; and __fish_seen_subcommand_from get" -l store -d 'The store, as for the other commands' -r -f
complete -c sandtimer -n "__fish_sandtimer_using_subcommand jobs; and __fish_seen_subcommand_from get" -s h -l help -d 'Print help'
complete -c sandtimer -n "__fish_sandtimer_using_subcommand jobs; and __fish_seen_subcommand_from wait" -l for -d 'The maximum time to wait, such as 30s; then the exit code is 75, and the jobs continue' -r
complete -c sandtimer -n "__fish_sandtimer_using_subcommand jobs; and __fish_seen_subcommand_from wait" -l errors -d 'How --json represents output that is not UTF-8' -r -f -a "strict\t'The stream is base64'
replace\t'Each sequence of bytes that is not UTF-8 becomes U+FFFD'"
complete -c sandtimer -n "__fish_sandtimer_using_subcommand jobs; and __fish_seen_subcommand_from wait" -l queue -d 'All of this queue that have not ended' -r
complete -c sandtimer -n "__fish_sandtimer_using_subcommand jobs; and __fish_seen_subcommand_from wait" -l state -d 'All in this state: scheduled, queued, running, ending; or leased, which is the last two' -r
complete -c sandtimer -n "__fish_sandtimer_using_subcommand jobs; and __fish_seen_subcommand_from wait" -l state-dir -d 'The directory of the store [default: /var/lib/sandtimer for root, else ~/.local/state/sandtimer]; SANDTIMER_STATE_DIR sets it too' -r -f -a "(__fish_complete_directories)"
complete -c sandtimer -n "__fish_sandtimer_using_subcommand jobs; and __fish_seen_subcommand_from wait" -l store -d 'The store: nats://[USER:PASSWORD@]HOST[:PORT], tls://…, or a directory as above; SANDTIMER_STORE sets it too. SANDTIMER_NATS_CREDENTIALS and SANDTIMER_NATS_CA name files of credentials and certificates' -r -f
complete -c sandtimer -n "__fish_sandtimer_using_subcommand jobs; and __fish_seen_subcommand_from wait" -l all -d 'Every job of the store that has not ended, of all owners'
complete -c sandtimer -n "__fish_sandtimer_using_subcommand jobs; and __fish_seen_subcommand_from wait" -l json -d 'Print JSON'
complete -c sandtimer -n "__fish_sandtimer_using_subcommand jobs; and __fish_seen_subcommand_from wait" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c sandtimer -n "__fish_sandtimer_using_subcommand jobs; and __fish_seen_subcommand_from watch" -l errors -d 'How --json represents output that is not UTF-8' -r -f -a "strict\t'The stream is base64'
replace\t'Each sequence of bytes that is not UTF-8 becomes U+FFFD'"
complete -c sandtimer -n "__fish_sandtimer_using_subcommand jobs; and __fish_seen_subcommand_from watch" -l state-dir -d 'The directory of the store [default: /var/lib/sandtimer for root, else ~/.local/state/sandtimer]; SANDTIMER_STATE_DIR sets it too' -r -f -a "(__fish_complete_directories)"
complete -c sandtimer -n "__fish_sandtimer_using_subcommand jobs; and __fish_seen_subcommand_from watch" -l store -d 'The store: nats://[USER:PASSWORD@]HOST[:PORT], tls://…, or a directory as above; SANDTIMER_STORE sets it too. SANDTIMER_NATS_CREDENTIALS and SANDTIMER_NATS_CA name files of credentials and certificates' -r -f
complete -c sandtimer -n "__fish_sandtimer_using_subcommand jobs; and __fish_seen_subcommand_from watch" -l json -d 'Print JSON'
complete -c sandtimer -n "__fish_sandtimer_using_subcommand jobs; and __fish_seen_subcommand_from watch" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c sandtimer -n "__fish_sandtimer_using_subcommand jobs; and __fish_seen_subcommand_from cancel" -l reason -d 'The reason, for the results of the jobs' -r
complete -c sandtimer -n "__fish_sandtimer_using_subcommand jobs; and __fish_seen_subcommand_from cancel" -l queue -d 'All of this queue that have not ended' -r
complete -c sandtimer -n "__fish_sandtimer_using_subcommand jobs; and __fish_seen_subcommand_from cancel" -l state -d 'All in this state: scheduled, queued, running, ending; or leased, which is the last two' -r
complete -c sandtimer -n "__fish_sandtimer_using_subcommand jobs; and __fish_seen_subcommand_from cancel" -l state-dir -d 'The directory of the store [default: /var/lib/sandtimer for root, else ~/.local/state/sandtimer]; SANDTIMER_STATE_DIR sets it too' -r -f -a "(__fish_complete_directories)"
complete -c sandtimer -n "__fish_sandtimer_using_subcommand jobs; and __fish_seen_subcommand_from cancel" -l store -d 'The store: nats://[USER:PASSWORD@]HOST[:PORT], tls://…, or a directory as above; SANDTIMER_STORE sets it too. SANDTIMER_NATS_CREDENTIALS and SANDTIMER_NATS_CA name files of credentials and certificates' -r -f
complete -c sandtimer -n "__fish_sandtimer_using_subcommand jobs; and __fish_seen_subcommand_from cancel" -l all -d 'Every job of the store that has not ended, of all owners'
complete -c sandtimer -n "__fish_sandtimer_using_subcommand jobs; and __fish_seen_subcommand_from cancel" -l json -d 'Print JSON'
complete -c sandtimer -n "__fish_sandtimer_using_subcommand jobs; and __fish_seen_subcommand_from cancel" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c sandtimer -n "__fish_sandtimer_using_subcommand jobs; and __fish_seen_subcommand_from retry" -l queue -d 'All of this queue that failed, are dead or were cancelled' -r
complete -c sandtimer -n "__fish_sandtimer_using_subcommand jobs; and __fish_seen_subcommand_from retry" -l state -d 'All in this state: failed, dead, cancelled' -r
complete -c sandtimer -n "__fish_sandtimer_using_subcommand jobs; and __fish_seen_subcommand_from retry" -l state-dir -d 'The directory of the store [default: /var/lib/sandtimer for root, else ~/.local/state/sandtimer]; SANDTIMER_STATE_DIR sets it too' -r -f -a "(__fish_complete_directories)"
complete -c sandtimer -n "__fish_sandtimer_using_subcommand jobs; and __fish_seen_subcommand_from retry" -l store -d 'The store: nats://[USER:PASSWORD@]HOST[:PORT], tls://…, or a directory as above; SANDTIMER_STORE sets it too. SANDTIMER_NATS_CREDENTIALS and SANDTIMER_NATS_CA name files of credentials and certificates' -r -f
complete -c sandtimer -n "__fish_sandtimer_using_subcommand jobs; and __fish_seen_subcommand_from retry" -l all -d 'All that failed, are dead or were cancelled'
complete -c sandtimer -n "__fish_sandtimer_using_subcommand jobs; and __fish_seen_subcommand_from retry" -l json -d 'Print JSON'
complete -c sandtimer -n "__fish_sandtimer_using_subcommand jobs; and __fish_seen_subcommand_from retry" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c sandtimer -n "__fish_sandtimer_using_subcommand jobs; and __fish_seen_subcommand_from redeliver" -l state-dir -d 'The directory of the store [default: /var/lib/sandtimer for root, else ~/.local/state/sandtimer]; SANDTIMER_STATE_DIR sets it too' -r -f -a "(__fish_complete_directories)"
complete -c sandtimer -n "__fish_sandtimer_using_subcommand jobs; and __fish_seen_subcommand_from redeliver" -l store -d 'The store: nats://[USER:PASSWORD@]HOST[:PORT], tls://…, or a directory as above; SANDTIMER_STORE sets it too. SANDTIMER_NATS_CREDENTIALS and SANDTIMER_NATS_CA name files of credentials and certificates' -r -f
complete -c sandtimer -n "__fish_sandtimer_using_subcommand jobs; and __fish_seen_subcommand_from redeliver" -l json -d 'Print JSON'
complete -c sandtimer -n "__fish_sandtimer_using_subcommand jobs; and __fish_seen_subcommand_from redeliver" -s h -l help -d 'Print help'
complete -c sandtimer -n "__fish_sandtimer_using_subcommand jobs; and __fish_seen_subcommand_from requeue" -l queue -d 'Only of this queue [default: of all]' -r
complete -c sandtimer -n "__fish_sandtimer_using_subcommand jobs; and __fish_seen_subcommand_from requeue" -l state-dir -d 'The directory of the store [default: /var/lib/sandtimer for root, else ~/.local/state/sandtimer]; SANDTIMER_STATE_DIR sets it too' -r -f -a "(__fish_complete_directories)"
complete -c sandtimer -n "__fish_sandtimer_using_subcommand jobs; and __fish_seen_subcommand_from requeue" -l store -d 'The store: nats://[USER:PASSWORD@]HOST[:PORT], tls://…, or a directory as above; SANDTIMER_STORE sets it too. SANDTIMER_NATS_CREDENTIALS and SANDTIMER_NATS_CA name files of credentials and certificates' -r -f
complete -c sandtimer -n "__fish_sandtimer_using_subcommand jobs; and __fish_seen_subcommand_from requeue" -l json -d 'Print JSON'
complete -c sandtimer -n "__fish_sandtimer_using_subcommand jobs; and __fish_seen_subcommand_from requeue" -s h -l help -d 'Print help'
complete -c sandtimer -n "__fish_sandtimer_using_subcommand jobs; and __fish_seen_subcommand_from purge" -l queue -d 'Only of this queue' -r
complete -c sandtimer -n "__fish_sandtimer_using_subcommand jobs; and __fish_seen_subcommand_from purge" -l state -d 'Only in this state: ok, failed, dead, cancelled; or ended, which is the first two' -r
complete -c sandtimer -n "__fish_sandtimer_using_subcommand jobs; and __fish_seen_subcommand_from purge" -l state-dir -d 'The directory of the store [default: /var/lib/sandtimer for root, else ~/.local/state/sandtimer]; SANDTIMER_STATE_DIR sets it too' -r -f -a "(__fish_complete_directories)"
complete -c sandtimer -n "__fish_sandtimer_using_subcommand jobs; and __fish_seen_subcommand_from purge" -l store -d 'The store: nats://[USER:PASSWORD@]HOST[:PORT], tls://…, or a directory as above; SANDTIMER_STORE sets it too. SANDTIMER_NATS_CREDENTIALS and SANDTIMER_NATS_CA name files of credentials and certificates' -r -f
complete -c sandtimer -n "__fish_sandtimer_using_subcommand jobs; and __fish_seen_subcommand_from purge" -l json -d 'Print JSON'
complete -c sandtimer -n "__fish_sandtimer_using_subcommand jobs; and __fish_seen_subcommand_from purge" -s h -l help -d 'Print help'
complete -c sandtimer -n "__fish_sandtimer_using_subcommand jobs; and __fish_seen_subcommand_from pause" -l schedule -d 'A schedule, by its name, in place of a queue' -r
complete -c sandtimer -n "__fish_sandtimer_using_subcommand jobs; and __fish_seen_subcommand_from pause" -l owner -d 'The owner of the schedule: a token\'s name, or `local` for schedules of the command line [default: local]' -r
complete -c sandtimer -n "__fish_sandtimer_using_subcommand jobs; and __fish_seen_subcommand_from pause" -l state-dir -d 'The directory of the store [default: /var/lib/sandtimer for root, else ~/.local/state/sandtimer]; SANDTIMER_STATE_DIR sets it too' -r -f -a "(__fish_complete_directories)"
complete -c sandtimer -n "__fish_sandtimer_using_subcommand jobs; and __fish_seen_subcommand_from pause" -l store -d 'The store: nats://[USER:PASSWORD@]HOST[:PORT], tls://…, or a directory as above; SANDTIMER_STORE sets it too. SANDTIMER_NATS_CREDENTIALS and SANDTIMER_NATS_CA name files of credentials and certificates' -r -f
complete -c sandtimer -n "__fish_sandtimer_using_subcommand jobs; and __fish_seen_subcommand_from pause" -l json -d 'Print JSON'
complete -c sandtimer -n "__fish_sandtimer_using_subcommand jobs; and __fish_seen_subcommand_from pause" -s h -l help -d 'Print help'
complete -c sandtimer -n "__fish_sandtimer_using_subcommand jobs; and __fish_seen_subcommand_from resume" -l schedule -d 'A schedule, by its name, in place of a queue' -r
complete -c sandtimer -n "__fish_sandtimer_using_subcommand jobs; and __fish_seen_subcommand_from resume" -l owner -d 'The owner of the schedule: a token\'s name, or `local` for schedules of the command line [default: local]' -r
complete -c sandtimer -n "__fish_sandtimer_using_subcommand jobs; and __fish_seen_subcommand_from resume" -l state-dir -d 'The directory of the store [default: /var/lib/sandtimer for root, else ~/.local/state/sandtimer]; SANDTIMER_STATE_DIR sets it too' -r -f -a "(__fish_complete_directories)"
complete -c sandtimer -n "__fish_sandtimer_using_subcommand jobs; and __fish_seen_subcommand_from resume" -l store -d 'The store: nats://[USER:PASSWORD@]HOST[:PORT], tls://…, or a directory as above; SANDTIMER_STORE sets it too. SANDTIMER_NATS_CREDENTIALS and SANDTIMER_NATS_CA name files of credentials and certificates' -r -f
complete -c sandtimer -n "__fish_sandtimer_using_subcommand jobs; and __fish_seen_subcommand_from resume" -l json -d 'Print JSON'
complete -c sandtimer -n "__fish_sandtimer_using_subcommand jobs; and __fish_seen_subcommand_from resume" -s h -l help -d 'Print help'
complete -c sandtimer -n "__fish_sandtimer_using_subcommand jobs; and __fish_seen_subcommand_from queues" -l state-dir -d 'The directory of the store [default: /var/lib/sandtimer for root, else ~/.local/state/sandtimer]; SANDTIMER_STATE_DIR sets it too' -r -f -a "(__fish_complete_directories)"
complete -c sandtimer -n "__fish_sandtimer_using_subcommand jobs; and __fish_seen_subcommand_from queues" -l store -d 'The store: nats://[USER:PASSWORD@]HOST[:PORT], tls://…, or a directory as above; SANDTIMER_STORE sets it too. SANDTIMER_NATS_CREDENTIALS and SANDTIMER_NATS_CA name files of credentials and certificates' -r -f
complete -c sandtimer -n "__fish_sandtimer_using_subcommand jobs; and __fish_seen_subcommand_from queues" -l json -d 'Print JSON'
complete -c sandtimer -n "__fish_sandtimer_using_subcommand jobs; and __fish_seen_subcommand_from queues" -s h -l help -d 'Print help'
complete -c sandtimer -n "__fish_sandtimer_using_subcommand jobs; and __fish_seen_subcommand_from schedule" -l state-dir -d 'The directory of the store [default: /var/lib/sandtimer for root, else ~/.local/state/sandtimer]; SANDTIMER_STATE_DIR sets it too' -r -f -a "(__fish_complete_directories)"
complete -c sandtimer -n "__fish_sandtimer_using_subcommand jobs; and __fish_seen_subcommand_from schedule" -l store -d 'The store: nats://[USER:PASSWORD@]HOST[:PORT], tls://…, or a directory as above; SANDTIMER_STORE sets it too. SANDTIMER_NATS_CREDENTIALS and SANDTIMER_NATS_CA name files of credentials and certificates' -r -f
complete -c sandtimer -n "__fish_sandtimer_using_subcommand jobs; and __fish_seen_subcommand_from schedule" -l json -d 'Print JSON'
complete -c sandtimer -n "__fish_sandtimer_using_subcommand jobs; and __fish_seen_subcommand_from schedule" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c sandtimer -n "__fish_sandtimer_using_subcommand jobs; and __fish_seen_subcommand_from schedules" -l state-dir -d 'The directory of the store [default: /var/lib/sandtimer for root, else ~/.local/state/sandtimer]; SANDTIMER_STATE_DIR sets it too' -r -f -a "(__fish_complete_directories)"
complete -c sandtimer -n "__fish_sandtimer_using_subcommand jobs; and __fish_seen_subcommand_from schedules" -l store -d 'The store: nats://[USER:PASSWORD@]HOST[:PORT], tls://…, or a directory as above; SANDTIMER_STORE sets it too. SANDTIMER_NATS_CREDENTIALS and SANDTIMER_NATS_CA name files of credentials and certificates' -r -f
complete -c sandtimer -n "__fish_sandtimer_using_subcommand jobs; and __fish_seen_subcommand_from schedules" -l json -d 'Print JSON'
complete -c sandtimer -n "__fish_sandtimer_using_subcommand jobs; and __fish_seen_subcommand_from schedules" -s h -l help -d 'Print help'
complete -c sandtimer -n "__fish_sandtimer_using_subcommand jobs; and __fish_seen_subcommand_from unschedule" -l owner -d 'The owner of the schedule: a token\'s name, or `local` for schedules of the command line [default: local]' -r
complete -c sandtimer -n "__fish_sandtimer_using_subcommand jobs; and __fish_seen_subcommand_from unschedule" -l state-dir -d 'The directory of the store [default: /var/lib/sandtimer for root, else ~/.local/state/sandtimer]; SANDTIMER_STATE_DIR sets it too' -r -f -a "(__fish_complete_directories)"
complete -c sandtimer -n "__fish_sandtimer_using_subcommand jobs; and __fish_seen_subcommand_from unschedule" -l store -d 'The store: nats://[USER:PASSWORD@]HOST[:PORT], tls://…, or a directory as above; SANDTIMER_STORE sets it too. SANDTIMER_NATS_CREDENTIALS and SANDTIMER_NATS_CA name files of credentials and certificates' -r -f
complete -c sandtimer -n "__fish_sandtimer_using_subcommand jobs; and __fish_seen_subcommand_from unschedule" -l json -d 'Print JSON'
complete -c sandtimer -n "__fish_sandtimer_using_subcommand jobs; and __fish_seen_subcommand_from unschedule" -s h -l help -d 'Print help'
complete -c sandtimer -n "__fish_sandtimer_using_subcommand jobs; and __fish_seen_subcommand_from breakers" -l most -d 'The maximum number of breakers' -r
complete -c sandtimer -n "__fish_sandtimer_using_subcommand jobs; and __fish_seen_subcommand_from breakers" -l cursor -d 'Continue an earlier listing at its `next`' -r
complete -c sandtimer -n "__fish_sandtimer_using_subcommand jobs; and __fish_seen_subcommand_from breakers" -l state-dir -d 'The directory of the store [default: /var/lib/sandtimer for root, else ~/.local/state/sandtimer]; SANDTIMER_STATE_DIR sets it too' -r -f -a "(__fish_complete_directories)"
complete -c sandtimer -n "__fish_sandtimer_using_subcommand jobs; and __fish_seen_subcommand_from breakers" -l store -d 'The store: nats://[USER:PASSWORD@]HOST[:PORT], tls://…, or a directory as above; SANDTIMER_STORE sets it too. SANDTIMER_NATS_CREDENTIALS and SANDTIMER_NATS_CA name files of credentials and certificates' -r -f
complete -c sandtimer -n "__fish_sandtimer_using_subcommand jobs; and __fish_seen_subcommand_from breakers" -l json -d 'Print JSON'
complete -c sandtimer -n "__fish_sandtimer_using_subcommand jobs; and __fish_seen_subcommand_from breakers" -s h -l help -d 'Print help'
complete -c sandtimer -n "__fish_sandtimer_using_subcommand jobs; and __fish_seen_subcommand_from workers" -l state-dir -d 'The directory of the store [default: /var/lib/sandtimer for root, else ~/.local/state/sandtimer]; SANDTIMER_STATE_DIR sets it too' -r -f -a "(__fish_complete_directories)"
complete -c sandtimer -n "__fish_sandtimer_using_subcommand jobs; and __fish_seen_subcommand_from workers" -l store -d 'The store: nats://[USER:PASSWORD@]HOST[:PORT], tls://…, or a directory as above; SANDTIMER_STORE sets it too. SANDTIMER_NATS_CREDENTIALS and SANDTIMER_NATS_CA name files of credentials and certificates' -r -f
complete -c sandtimer -n "__fish_sandtimer_using_subcommand jobs; and __fish_seen_subcommand_from workers" -l json -d 'Print JSON'
complete -c sandtimer -n "__fish_sandtimer_using_subcommand jobs; and __fish_seen_subcommand_from workers" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c sandtimer -n "__fish_sandtimer_using_subcommand jupyter; and not __fish_seen_subcommand_from install" -s h -l help -d 'Print help'
complete -c sandtimer -n "__fish_sandtimer_using_subcommand jupyter; and not __fish_seen_subcommand_from install" -f -a "install" -d 'Write a kernelspec of sealed Python kernels, by the python3 in PATH'
complete -c sandtimer -n "__fish_sandtimer_using_subcommand jupyter; and __fish_seen_subcommand_from install" -l prefix -d 'Install into the environment in this directory' -r -f -a "(__fish_complete_directories)"
complete -c sandtimer -n "__fish_sandtimer_using_subcommand jupyter; and __fish_seen_subcommand_from install" -l name -d 'The kernelspec\'s name [default: sandtimer]' -r
complete -c sandtimer -n "__fish_sandtimer_using_subcommand jupyter; and __fish_seen_subcommand_from install" -l memory -d 'Memory of a kernel, such as 4G' -r
complete -c sandtimer -n "__fish_sandtimer_using_subcommand jupyter; and __fish_seen_subcommand_from install" -l wall -l timeout -d 'Wall-clock limit of a kernel, such as 12h' -r
complete -c sandtimer -n "__fish_sandtimer_using_subcommand jupyter; and __fish_seen_subcommand_from install" -l cell-timeout -d 'Wall-clock limit of a cell, such as 10m' -r
complete -c sandtimer -n "__fish_sandtimer_using_subcommand jupyter; and __fish_seen_subcommand_from install" -l workspace -d 'A directory that kernels may write to; `.` is the notebook\'s; may be repeated' -r -f -a "(__fish_complete_directories)"
complete -c sandtimer -n "__fish_sandtimer_using_subcommand jupyter; and __fish_seen_subcommand_from install" -l user -d 'Install for this user [default: for all users]'
complete -c sandtimer -n "__fish_sandtimer_using_subcommand jupyter; and __fish_seen_subcommand_from install" -l sys-prefix -d 'Install into the environment of python3'
complete -c sandtimer -n "__fish_sandtimer_using_subcommand jupyter; and __fish_seen_subcommand_from install" -l network -d 'Give kernels the host\'s network'
complete -c sandtimer -n "__fish_sandtimer_using_subcommand jupyter; and __fish_seen_subcommand_from install" -s h -l help -d 'Print help'
complete -c sandtimer -n "__fish_sandtimer_using_subcommand ps" -l server -d 'The server\'s address [default: http://127.0.0.1:7880]; SANDTIMER_SERVER sets it too' -r
complete -c sandtimer -n "__fish_sandtimer_using_subcommand ps" -l token-file -d 'A file that holds the token; SANDTIMER_TOKEN is the token itself' -r -F
complete -c sandtimer -n "__fish_sandtimer_using_subcommand ps" -s a -l all -d 'Also list ended runs'
complete -c sandtimer -n "__fish_sandtimer_using_subcommand ps" -l json -d 'Print JSON'
complete -c sandtimer -n "__fish_sandtimer_using_subcommand ps" -s h -l help -d 'Print help'
complete -c sandtimer -n "__fish_sandtimer_using_subcommand logs" -l server -d 'The server\'s address [default: http://127.0.0.1:7880]; SANDTIMER_SERVER sets it too' -r
complete -c sandtimer -n "__fish_sandtimer_using_subcommand logs" -l token-file -d 'A file that holds the token; SANDTIMER_TOKEN is the token itself' -r -F
complete -c sandtimer -n "__fish_sandtimer_using_subcommand logs" -s f -l follow -d 'Continue until the run has ended'
complete -c sandtimer -n "__fish_sandtimer_using_subcommand logs" -l json -d 'Print JSON'
complete -c sandtimer -n "__fish_sandtimer_using_subcommand logs" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c sandtimer -n "__fish_sandtimer_using_subcommand kill" -l reason -d 'The reason, for the run\'s verdict' -r
complete -c sandtimer -n "__fish_sandtimer_using_subcommand kill" -l server -d 'The server\'s address [default: http://127.0.0.1:7880]; SANDTIMER_SERVER sets it too' -r
complete -c sandtimer -n "__fish_sandtimer_using_subcommand kill" -l token-file -d 'A file that holds the token; SANDTIMER_TOKEN is the token itself' -r -F
complete -c sandtimer -n "__fish_sandtimer_using_subcommand kill" -l json -d 'Print JSON'
complete -c sandtimer -n "__fish_sandtimer_using_subcommand kill" -s h -l help -d 'Print help'
complete -c sandtimer -n "__fish_sandtimer_using_subcommand extend" -l server -d 'The server\'s address [default: http://127.0.0.1:7880]; SANDTIMER_SERVER sets it too' -r
complete -c sandtimer -n "__fish_sandtimer_using_subcommand extend" -l token-file -d 'A file that holds the token; SANDTIMER_TOKEN is the token itself' -r -F
complete -c sandtimer -n "__fish_sandtimer_using_subcommand extend" -l json -d 'Print JSON'
complete -c sandtimer -n "__fish_sandtimer_using_subcommand extend" -s h -l help -d 'Print help'
complete -c sandtimer -n "__fish_sandtimer_using_subcommand pause" -l server -d 'The server\'s address [default: http://127.0.0.1:7880]; SANDTIMER_SERVER sets it too' -r
complete -c sandtimer -n "__fish_sandtimer_using_subcommand pause" -l token-file -d 'A file that holds the token; SANDTIMER_TOKEN is the token itself' -r -F
complete -c sandtimer -n "__fish_sandtimer_using_subcommand pause" -l json -d 'Print JSON'
complete -c sandtimer -n "__fish_sandtimer_using_subcommand pause" -s h -l help -d 'Print help'
complete -c sandtimer -n "__fish_sandtimer_using_subcommand resume" -l server -d 'The server\'s address [default: http://127.0.0.1:7880]; SANDTIMER_SERVER sets it too' -r
complete -c sandtimer -n "__fish_sandtimer_using_subcommand resume" -l token-file -d 'A file that holds the token; SANDTIMER_TOKEN is the token itself' -r -F
complete -c sandtimer -n "__fish_sandtimer_using_subcommand resume" -l json -d 'Print JSON'
complete -c sandtimer -n "__fish_sandtimer_using_subcommand resume" -s h -l help -d 'Print help'
complete -c sandtimer -n "__fish_sandtimer_using_subcommand sandbox; and not __fish_seen_subcommand_from create list exec copy snapshot fork diff export expose pause resume extend delete" -s h -l help -d 'Print help'
complete -c sandtimer -n "__fish_sandtimer_using_subcommand sandbox; and not __fish_seen_subcommand_from create list exec copy snapshot fork diff export expose pause resume extend delete" -f -a "create" -d 'Make a sandbox, and print its id'
complete -c sandtimer -n "__fish_sandtimer_using_subcommand sandbox; and not __fish_seen_subcommand_from create list exec copy snapshot fork diff export expose pause resume extend delete" -f -a "list" -d 'List your sandboxes, the oldest first'
complete -c sandtimer -n "__fish_sandtimer_using_subcommand sandbox; and not __fish_seen_subcommand_from create list exec copy snapshot fork diff export expose pause resume extend delete" -f -a "exec" -d 'Run a command in a sandbox, and wait for its end'
complete -c sandtimer -n "__fish_sandtimer_using_subcommand sandbox; and not __fish_seen_subcommand_from create list exec copy snapshot fork diff export expose pause resume extend delete" -f -a "copy" -d 'Copy a file or a directory into a sandbox, or out of one'
complete -c sandtimer -n "__fish_sandtimer_using_subcommand sandbox; and not __fish_seen_subcommand_from create list exec copy snapshot fork diff export expose pause resume extend delete" -f -a "snapshot" -d 'Make a template of the files of a sandbox, and print its name'
complete -c sandtimer -n "__fish_sandtimer_using_subcommand sandbox; and not __fish_seen_subcommand_from create list exec copy snapshot fork diff export expose pause resume extend delete" -f -a "fork" -d 'Make sandboxes with the files of another one, and print their ids'
complete -c sandtimer -n "__fish_sandtimer_using_subcommand sandbox; and not __fish_seen_subcommand_from create list exec copy snapshot fork diff export expose pause resume extend delete" -f -a "diff" -d 'List what has changed in a sandbox against its template'
complete -c sandtimer -n "__fish_sandtimer_using_subcommand sandbox; and not __fish_seen_subcommand_from create list exec copy snapshot fork diff export expose pause resume extend delete" -f -a "export" -d 'Write the files of a sandbox to stdout, as a tar archive'
complete -c sandtimer -n "__fish_sandtimer_using_subcommand sandbox; and not __fish_seen_subcommand_from create list exec copy snapshot fork diff export expose pause resume extend delete" -f -a "expose" -d 'Print a link to a port of a sandbox, which needs no token until it expires'
complete -c sandtimer -n "__fish_sandtimer_using_subcommand sandbox; and not __fish_seen_subcommand_from create list exec copy snapshot fork diff export expose pause resume extend delete" -f -a "pause" -d 'Stop all that runs in a sandbox, and the clocks of its limits'
complete -c sandtimer -n "__fish_sandtimer_using_subcommand sandbox; and not __fish_seen_subcommand_from create list exec copy snapshot fork diff export expose pause resume extend delete" -f -a "resume" -d 'Resume a paused sandbox'
complete -c sandtimer -n "__fish_sandtimer_using_subcommand sandbox; and not __fish_seen_subcommand_from create list exec copy snapshot fork diff export expose pause resume extend delete" -f -a "extend" -d 'Extend the wall-clock limit of a sandbox'
complete -c sandtimer -n "__fish_sandtimer_using_subcommand sandbox; and not __fish_seen_subcommand_from create list exec copy snapshot fork diff export expose pause resume extend delete" -f -a "delete" -d 'End all runs in a sandbox, and delete it with all of its files'
complete -c sandtimer -n "__fish_sandtimer_using_subcommand sandbox; and __fish_seen_subcommand_from create" -l template -d 'What it is made from: `host`, or another template of `sandtimer template list` [default: host]' -r
complete -c sandtimer -n "__fish_sandtimer_using_subcommand sandbox; and __fish_seen_subcommand_from create" -l network -d 'What all that runs in it can reach outside [default: none]' -r -f -a "none\t''
host\t''"
complete -c sandtimer -n "__fish_sandtimer_using_subcommand sandbox; and __fish_seen_subcommand_from create" -l allow -d 'A host that what runs in it can reach; repeat it for more' -r
complete -c sandtimer -n "__fish_sandtimer_using_subcommand sandbox; and __fish_seen_subcommand_from create" -l idle -d 'Delete it once nothing has used it for this long, such as 1h; runs, contexts, sessions and work with its files are use' -r
complete -c sandtimer -n "__fish_sandtimer_using_subcommand sandbox; and __fish_seen_subcommand_from create" -l wall -l timeout -d 'Delete it after this long, such as 1d, pauses not counted; what runs in it then ends' -r
complete -c sandtimer -n "__fish_sandtimer_using_subcommand sandbox; and __fish_seen_subcommand_from create" -l memory -d 'Memory of all that runs in it together, such as 2G; each run has its own limit as well' -r
complete -c sandtimer -n "__fish_sandtimer_using_subcommand sandbox; and __fish_seen_subcommand_from create" -l processes -d 'Processes and threads of all that runs in it together, at once' -r
complete -c sandtimer -n "__fish_sandtimer_using_subcommand sandbox; and __fish_seen_subcommand_from create" -l server -d 'The server\'s address [default: http://127.0.0.1:7880]; SANDTIMER_SERVER sets it too' -r
complete -c sandtimer -n "__fish_sandtimer_using_subcommand sandbox; and __fish_seen_subcommand_from create" -l token-file -d 'A file that holds the token; SANDTIMER_TOKEN is the token itself' -r -F
complete -c sandtimer -n "__fish_sandtimer_using_subcommand sandbox; and __fish_seen_subcommand_from create" -l json -d 'Print JSON'
complete -c sandtimer -n "__fish_sandtimer_using_subcommand sandbox; and __fish_seen_subcommand_from create" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c sandtimer -n "__fish_sandtimer_using_subcommand sandbox; and __fish_seen_subcommand_from list" -l server -d 'The server\'s address [default: http://127.0.0.1:7880]; SANDTIMER_SERVER sets it too' -r
complete -c sandtimer -n "__fish_sandtimer_using_subcommand sandbox; and __fish_seen_subcommand_from list" -l token-file -d 'A file that holds the token; SANDTIMER_TOKEN is the token itself' -r -F
complete -c sandtimer -n "__fish_sandtimer_using_subcommand sandbox; and __fish_seen_subcommand_from list" -l json -d 'Print JSON'
complete -c sandtimer -n "__fish_sandtimer_using_subcommand sandbox; and __fish_seen_subcommand_from list" -s h -l help -d 'Print help'
complete -c sandtimer -n "__fish_sandtimer_using_subcommand sandbox; and __fish_seen_subcommand_from exec" -l wall -l timeout -d 'Wall-clock limit of the command, such as 30s [default: the server\'s]' -r
complete -c sandtimer -n "__fish_sandtimer_using_subcommand sandbox; and __fish_seen_subcommand_from exec" -l cwd -d 'The directory to start in [default: /workspace]' -r
complete -c sandtimer -n "__fish_sandtimer_using_subcommand sandbox; and __fish_seen_subcommand_from exec" -l server -d 'The server\'s address [default: http://127.0.0.1:7880]; SANDTIMER_SERVER sets it too' -r
complete -c sandtimer -n "__fish_sandtimer_using_subcommand sandbox; and __fish_seen_subcommand_from exec" -l token-file -d 'A file that holds the token; SANDTIMER_TOKEN is the token itself' -r -F
complete -c sandtimer -n "__fish_sandtimer_using_subcommand sandbox; and __fish_seen_subcommand_from exec" -l json -d 'Print JSON'
complete -c sandtimer -n "__fish_sandtimer_using_subcommand sandbox; and __fish_seen_subcommand_from exec" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c sandtimer -n "__fish_sandtimer_using_subcommand sandbox; and __fish_seen_subcommand_from copy" -l server -d 'The server\'s address [default: http://127.0.0.1:7880]; SANDTIMER_SERVER sets it too' -r
complete -c sandtimer -n "__fish_sandtimer_using_subcommand sandbox; and __fish_seen_subcommand_from copy" -l token-file -d 'A file that holds the token; SANDTIMER_TOKEN is the token itself' -r -F
complete -c sandtimer -n "__fish_sandtimer_using_subcommand sandbox; and __fish_seen_subcommand_from copy" -l json -d 'Print JSON'
complete -c sandtimer -n "__fish_sandtimer_using_subcommand sandbox; and __fish_seen_subcommand_from copy" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c sandtimer -n "__fish_sandtimer_using_subcommand sandbox; and __fish_seen_subcommand_from snapshot" -l name -d 'What the template is called [default: its id]' -r
complete -c sandtimer -n "__fish_sandtimer_using_subcommand sandbox; and __fish_seen_subcommand_from snapshot" -l server -d 'The server\'s address [default: http://127.0.0.1:7880]; SANDTIMER_SERVER sets it too' -r
complete -c sandtimer -n "__fish_sandtimer_using_subcommand sandbox; and __fish_seen_subcommand_from snapshot" -l token-file -d 'A file that holds the token; SANDTIMER_TOKEN is the token itself' -r -F
complete -c sandtimer -n "__fish_sandtimer_using_subcommand sandbox; and __fish_seen_subcommand_from snapshot" -l json -d 'Print JSON'
complete -c sandtimer -n "__fish_sandtimer_using_subcommand sandbox; and __fish_seen_subcommand_from snapshot" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c sandtimer -n "__fish_sandtimer_using_subcommand sandbox; and __fish_seen_subcommand_from fork" -l count -d 'How many sandboxes are made, at most 100' -r
complete -c sandtimer -n "__fish_sandtimer_using_subcommand sandbox; and __fish_seen_subcommand_from fork" -l server -d 'The server\'s address [default: http://127.0.0.1:7880]; SANDTIMER_SERVER sets it too' -r
complete -c sandtimer -n "__fish_sandtimer_using_subcommand sandbox; and __fish_seen_subcommand_from fork" -l token-file -d 'A file that holds the token; SANDTIMER_TOKEN is the token itself' -r -F
complete -c sandtimer -n "__fish_sandtimer_using_subcommand sandbox; and __fish_seen_subcommand_from fork" -l json -d 'Print JSON'
complete -c sandtimer -n "__fish_sandtimer_using_subcommand sandbox; and __fish_seen_subcommand_from fork" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c sandtimer -n "__fish_sandtimer_using_subcommand sandbox; and __fish_seen_subcommand_from diff" -l limit -d 'How many changes are listed, at most 100000' -r
complete -c sandtimer -n "__fish_sandtimer_using_subcommand sandbox; and __fish_seen_subcommand_from diff" -l server -d 'The server\'s address [default: http://127.0.0.1:7880]; SANDTIMER_SERVER sets it too' -r
complete -c sandtimer -n "__fish_sandtimer_using_subcommand sandbox; and __fish_seen_subcommand_from diff" -l token-file -d 'A file that holds the token; SANDTIMER_TOKEN is the token itself' -r -F
complete -c sandtimer -n "__fish_sandtimer_using_subcommand sandbox; and __fish_seen_subcommand_from diff" -l json -d 'Print JSON'
complete -c sandtimer -n "__fish_sandtimer_using_subcommand sandbox; and __fish_seen_subcommand_from diff" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c sandtimer -n "__fish_sandtimer_using_subcommand sandbox; and __fish_seen_subcommand_from export" -l server -d 'The server\'s address [default: http://127.0.0.1:7880]; SANDTIMER_SERVER sets it too' -r
complete -c sandtimer -n "__fish_sandtimer_using_subcommand sandbox; and __fish_seen_subcommand_from export" -l token-file -d 'A file that holds the token; SANDTIMER_TOKEN is the token itself' -r -F
complete -c sandtimer -n "__fish_sandtimer_using_subcommand sandbox; and __fish_seen_subcommand_from export" -l changes -d 'Only what was added or changed against its template'
complete -c sandtimer -n "__fish_sandtimer_using_subcommand sandbox; and __fish_seen_subcommand_from export" -l json -d 'Print JSON'
complete -c sandtimer -n "__fish_sandtimer_using_subcommand sandbox; and __fish_seen_subcommand_from export" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c sandtimer -n "__fish_sandtimer_using_subcommand sandbox; and __fish_seen_subcommand_from expose" -l for -d 'How long the link is valid, such as 30m [default: 1h]' -r
complete -c sandtimer -n "__fish_sandtimer_using_subcommand sandbox; and __fish_seen_subcommand_from expose" -l server -d 'The server\'s address [default: http://127.0.0.1:7880]; SANDTIMER_SERVER sets it too' -r
complete -c sandtimer -n "__fish_sandtimer_using_subcommand sandbox; and __fish_seen_subcommand_from expose" -l token-file -d 'A file that holds the token; SANDTIMER_TOKEN is the token itself' -r -F
complete -c sandtimer -n "__fish_sandtimer_using_subcommand sandbox; and __fish_seen_subcommand_from expose" -l json -d 'Print JSON'
complete -c sandtimer -n "__fish_sandtimer_using_subcommand sandbox; and __fish_seen_subcommand_from expose" -s h -l help -d 'Print help'
complete -c sandtimer -n "__fish_sandtimer_using_subcommand sandbox; and __fish_seen_subcommand_from pause" -l server -d 'The server\'s address [default: http://127.0.0.1:7880]; SANDTIMER_SERVER sets it too' -r
complete -c sandtimer -n "__fish_sandtimer_using_subcommand sandbox; and __fish_seen_subcommand_from pause" -l token-file -d 'A file that holds the token; SANDTIMER_TOKEN is the token itself' -r -F
complete -c sandtimer -n "__fish_sandtimer_using_subcommand sandbox; and __fish_seen_subcommand_from pause" -l json -d 'Print JSON'
complete -c sandtimer -n "__fish_sandtimer_using_subcommand sandbox; and __fish_seen_subcommand_from pause" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c sandtimer -n "__fish_sandtimer_using_subcommand sandbox; and __fish_seen_subcommand_from resume" -l server -d 'The server\'s address [default: http://127.0.0.1:7880]; SANDTIMER_SERVER sets it too' -r
complete -c sandtimer -n "__fish_sandtimer_using_subcommand sandbox; and __fish_seen_subcommand_from resume" -l token-file -d 'A file that holds the token; SANDTIMER_TOKEN is the token itself' -r -F
complete -c sandtimer -n "__fish_sandtimer_using_subcommand sandbox; and __fish_seen_subcommand_from resume" -l json -d 'Print JSON'
complete -c sandtimer -n "__fish_sandtimer_using_subcommand sandbox; and __fish_seen_subcommand_from resume" -s h -l help -d 'Print help'
complete -c sandtimer -n "__fish_sandtimer_using_subcommand sandbox; and __fish_seen_subcommand_from extend" -l server -d 'The server\'s address [default: http://127.0.0.1:7880]; SANDTIMER_SERVER sets it too' -r
complete -c sandtimer -n "__fish_sandtimer_using_subcommand sandbox; and __fish_seen_subcommand_from extend" -l token-file -d 'A file that holds the token; SANDTIMER_TOKEN is the token itself' -r -F
complete -c sandtimer -n "__fish_sandtimer_using_subcommand sandbox; and __fish_seen_subcommand_from extend" -l json -d 'Print JSON'
complete -c sandtimer -n "__fish_sandtimer_using_subcommand sandbox; and __fish_seen_subcommand_from extend" -s h -l help -d 'Print help'
complete -c sandtimer -n "__fish_sandtimer_using_subcommand sandbox; and __fish_seen_subcommand_from delete" -l server -d 'The server\'s address [default: http://127.0.0.1:7880]; SANDTIMER_SERVER sets it too' -r
complete -c sandtimer -n "__fish_sandtimer_using_subcommand sandbox; and __fish_seen_subcommand_from delete" -l token-file -d 'A file that holds the token; SANDTIMER_TOKEN is the token itself' -r -F
complete -c sandtimer -n "__fish_sandtimer_using_subcommand sandbox; and __fish_seen_subcommand_from delete" -l json -d 'Print JSON'
complete -c sandtimer -n "__fish_sandtimer_using_subcommand sandbox; and __fish_seen_subcommand_from delete" -s h -l help -d 'Print help'
complete -c sandtimer -n "__fish_sandtimer_using_subcommand template; and not __fish_seen_subcommand_from import list delete" -s h -l help -d 'Print help'
complete -c sandtimer -n "__fish_sandtimer_using_subcommand template; and not __fish_seen_subcommand_from import list delete" -f -a "import" -d 'Make a template of a tar archive or a directory that has a root tree, and print its name'
complete -c sandtimer -n "__fish_sandtimer_using_subcommand template; and not __fish_seen_subcommand_from import list delete" -f -a "list" -d 'List what sandboxes can be made from'
complete -c sandtimer -n "__fish_sandtimer_using_subcommand template; and not __fish_seen_subcommand_from import list delete" -f -a "delete" -d 'Delete a template; sandboxes that were made from it keep its files'
complete -c sandtimer -n "__fish_sandtimer_using_subcommand template; and __fish_seen_subcommand_from import" -l server -d 'The server\'s address [default: http://127.0.0.1:7880]; SANDTIMER_SERVER sets it too' -r
complete -c sandtimer -n "__fish_sandtimer_using_subcommand template; and __fish_seen_subcommand_from import" -l token-file -d 'A file that holds the token; SANDTIMER_TOKEN is the token itself' -r -F
complete -c sandtimer -n "__fish_sandtimer_using_subcommand template; and __fish_seen_subcommand_from import" -l json -d 'Print JSON'
complete -c sandtimer -n "__fish_sandtimer_using_subcommand template; and __fish_seen_subcommand_from import" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c sandtimer -n "__fish_sandtimer_using_subcommand template; and __fish_seen_subcommand_from list" -l server -d 'The server\'s address [default: http://127.0.0.1:7880]; SANDTIMER_SERVER sets it too' -r
complete -c sandtimer -n "__fish_sandtimer_using_subcommand template; and __fish_seen_subcommand_from list" -l token-file -d 'A file that holds the token; SANDTIMER_TOKEN is the token itself' -r -F
complete -c sandtimer -n "__fish_sandtimer_using_subcommand template; and __fish_seen_subcommand_from list" -l json -d 'Print JSON'
complete -c sandtimer -n "__fish_sandtimer_using_subcommand template; and __fish_seen_subcommand_from list" -s h -l help -d 'Print help'
complete -c sandtimer -n "__fish_sandtimer_using_subcommand template; and __fish_seen_subcommand_from delete" -l server -d 'The server\'s address [default: http://127.0.0.1:7880]; SANDTIMER_SERVER sets it too' -r
complete -c sandtimer -n "__fish_sandtimer_using_subcommand template; and __fish_seen_subcommand_from delete" -l token-file -d 'A file that holds the token; SANDTIMER_TOKEN is the token itself' -r -F
complete -c sandtimer -n "__fish_sandtimer_using_subcommand template; and __fish_seen_subcommand_from delete" -l json -d 'Print JSON'
complete -c sandtimer -n "__fish_sandtimer_using_subcommand template; and __fish_seen_subcommand_from delete" -s h -l help -d 'Print help'
complete -c sandtimer -n "__fish_sandtimer_using_subcommand estimate" -l command -d 'The command, as a line for a shell' -r
complete -c sandtimer -n "__fish_sandtimer_using_subcommand estimate" -l data-size-mb -d 'Megabytes of data that the task works on' -r
complete -c sandtimer -n "__fish_sandtimer_using_subcommand estimate" -l complexity -d 'simple, moderate or complex [default: moderate]' -r
complete -c sandtimer -n "__fish_sandtimer_using_subcommand estimate" -l context -d 'Keywords that distinguish the task from others of its type; they are compared, not interpreted' -r
complete -c sandtimer -n "__fish_sandtimer_using_subcommand estimate" -l budget -d 'The time that is available, such as 2h: the answer states whether the task fits' -r
complete -c sandtimer -n "__fish_sandtimer_using_subcommand estimate" -l state-dir -d 'The directory of the servers\' records [default: as for `sandtimer serve`]; SANDTIMER_STATE_DIR sets it too' -r -f -a "(__fish_complete_directories)"
complete -c sandtimer -n "__fish_sandtimer_using_subcommand estimate" -l list -d 'List the types of task, with the duration that is assumed while no runs are known'
complete -c sandtimer -n "__fish_sandtimer_using_subcommand estimate" -l json -d 'Print JSON'
complete -c sandtimer -n "__fish_sandtimer_using_subcommand estimate" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c sandtimer -n "__fish_sandtimer_using_subcommand progress" -l unit -d 'The unit that is counted, such as epoch' -r
complete -c sandtimer -n "__fish_sandtimer_using_subcommand progress" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c sandtimer -n "__fish_sandtimer_using_subcommand doctor" -l require -d 'Exit with 125 unless this tier (T0–T3) or kill class (K0–K3) is available; may be repeated' -r
complete -c sandtimer -n "__fish_sandtimer_using_subcommand doctor" -l json -d 'Print JSON'
complete -c sandtimer -n "__fish_sandtimer_using_subcommand doctor" -l bwrap -d 'Check which `bwrap` comes first in PATH, and print how coding agents are pointed at this one'
complete -c sandtimer -n "__fish_sandtimer_using_subcommand doctor" -s h -l help -d 'Print help'
complete -c sandtimer -n "__fish_sandtimer_using_subcommand bench; and not __fish_seen_subcommand_from lateness spawn many" -s h -l help -d 'Print help'
complete -c sandtimer -n "__fish_sandtimer_using_subcommand bench; and not __fish_seen_subcommand_from lateness spawn many" -f -a "lateness" -d 'Measure how late the verdict of a wall-clock limit is, for code that resists its end'
complete -c sandtimer -n "__fish_sandtimer_using_subcommand bench; and not __fish_seen_subcommand_from lateness spawn many" -f -a "spawn" -d 'Measure what a sandboxed run costs, compared with a plain process'
complete -c sandtimer -n "__fish_sandtimer_using_subcommand bench; and not __fish_seen_subcommand_from lateness spawn many" -f -a "many" -d 'Measure what many waiting runs cost the engine'
complete -c sandtimer -n "__fish_sandtimer_using_subcommand bench; and __fish_seen_subcommand_from lateness" -l runs -d 'How many runs' -r
complete -c sandtimer -n "__fish_sandtimer_using_subcommand bench; and __fish_seen_subcommand_from lateness" -l load -d 'Under load: 8 busy loops for each processor, in sandboxes'
complete -c sandtimer -n "__fish_sandtimer_using_subcommand bench; and __fish_seen_subcommand_from lateness" -l json -d 'Print JSON'
complete -c sandtimer -n "__fish_sandtimer_using_subcommand bench; and __fish_seen_subcommand_from lateness" -s h -l help -d 'Print help'
complete -c sandtimer -n "__fish_sandtimer_using_subcommand bench; and __fish_seen_subcommand_from spawn" -l rounds -d 'How many rounds; each starts every variant once' -r
complete -c sandtimer -n "__fish_sandtimer_using_subcommand bench; and __fish_seen_subcommand_from spawn" -l json -d 'Print JSON'
complete -c sandtimer -n "__fish_sandtimer_using_subcommand bench; and __fish_seen_subcommand_from spawn" -s h -l help -d 'Print help'
complete -c sandtimer -n "__fish_sandtimer_using_subcommand bench; and __fish_seen_subcommand_from many" -l runs -d 'How many runs at a time' -r
complete -c sandtimer -n "__fish_sandtimer_using_subcommand bench; and __fish_seen_subcommand_from many" -l json -d 'Print JSON'
complete -c sandtimer -n "__fish_sandtimer_using_subcommand bench; and __fish_seen_subcommand_from many" -s h -l help -d 'Print help'
complete -c sandtimer -n "__fish_sandtimer_using_subcommand config; and not __fish_seen_subcommand_from show" -s h -l help -d 'Print help'
complete -c sandtimer -n "__fish_sandtimer_using_subcommand config; and not __fish_seen_subcommand_from show" -f -a "show" -d 'Show every setting that applies here and where it comes from'
complete -c sandtimer -n "__fish_sandtimer_using_subcommand config; and __fish_seen_subcommand_from show" -l json -d 'Print JSON'
complete -c sandtimer -n "__fish_sandtimer_using_subcommand config; and __fish_seen_subcommand_from show" -s h -l help -d 'Print help'
complete -c sandtimer -n "__fish_sandtimer_using_subcommand completions" -s h -l help -d 'Print help'
complete -c sandtimer -n "__fish_sandtimer_using_subcommand read-typescript" -s h -l help -d 'Print help'
complete -c sandtimer -n "__fish_sandtimer_using_subcommand generate" -l dir -d 'The directory to write to' -r -F
complete -c sandtimer -n "__fish_sandtimer_using_subcommand generate" -s h -l help -d 'Print help'
