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
complete -c sandtimer -n "__fish_sandtimer_needs_command" -f -a "serve" -d 'Serve runs over HTTP'
complete -c sandtimer -n "__fish_sandtimer_needs_command" -f -a "mcp" -d 'Give an agent tools over stdin and stdout, by the Model Context Protocol'
complete -c sandtimer -n "__fish_sandtimer_needs_command" -f -a "jobs" -d 'Submit durable work, execute it, and see what became of it'
complete -c sandtimer -n "__fish_sandtimer_needs_command" -f -a "ps" -d 'List what goes on in a server: runs, contexts, sessions'
complete -c sandtimer -n "__fish_sandtimer_needs_command" -f -a "logs" -d 'Print what a run of a server has written'
complete -c sandtimer -n "__fish_sandtimer_needs_command" -f -a "kill" -d 'End a run of a server, or a context or session'
complete -c sandtimer -n "__fish_sandtimer_needs_command" -f -a "extend" -d 'Move the wall limit of a run of a server later'
complete -c sandtimer -n "__fish_sandtimer_needs_command" -f -a "pause" -d 'Stop the processes of a run of a server, and the run\'s own clocks'
complete -c sandtimer -n "__fish_sandtimer_needs_command" -f -a "resume" -d 'Let a paused run of a server go on'
complete -c sandtimer -n "__fish_sandtimer_needs_command" -f -a "estimate" -d 'Say how long a task or a command is likely to take'
complete -c sandtimer -n "__fish_sandtimer_needs_command" -f -a "progress" -d 'Report, from inside a run, how far it is'
complete -c sandtimer -n "__fish_sandtimer_needs_command" -f -a "doctor" -d 'Show what this machine can enforce, and what is missing'
complete -c sandtimer -n "__fish_sandtimer_needs_command" -f -a "bench" -d 'Measure how late limits are and what a sandbox costs, on this machine'
complete -c sandtimer -n "__fish_sandtimer_needs_command" -f -a "config" -d 'Show the settings that apply here'
complete -c sandtimer -n "__fish_sandtimer_needs_command" -f -a "completions" -d 'Print completions for a shell'
complete -c sandtimer -n "__fish_sandtimer_needs_command" -f -a "read-typescript" -d 'Read TypeScript from stdin, for an engine'
complete -c sandtimer -n "__fish_sandtimer_needs_command" -f -a "generate" -d 'Write the manual page, completions and references'
complete -c sandtimer -n "__fish_sandtimer_using_subcommand run" -l wall -l timeout -d 'Longest time, such as 2s or 1h30m; a bare number is seconds, 0 or `unlimited` is none' -r
complete -c sandtimer -n "__fish_sandtimer_using_subcommand run" -l cpu -d 'Processor time of all its processes together' -r
complete -c sandtimer -n "__fish_sandtimer_using_subcommand run" -l stall -d 'Longest time without output and without CPU use, or as --stall-by says' -r
complete -c sandtimer -n "__fish_sandtimer_using_subcommand run" -l grace -d 'Time between SIGTERM and the kill' -r
complete -c sandtimer -n "__fish_sandtimer_using_subcommand run" -l memory -d 'Memory of all its processes together, such as 512M' -r
complete -c sandtimer -n "__fish_sandtimer_using_subcommand run" -l processes -d 'Processes and threads alive at once' -r
complete -c sandtimer -n "__fish_sandtimer_using_subcommand run" -l output -d 'Bytes let through of stdout and of stderr; the rest is dropped, and said so' -r
complete -c sandtimer -n "__fish_sandtimer_using_subcommand run" -l disk -d 'Bytes in its private directories and, polled, in its workspaces' -r
complete -c sandtimer -n "__fish_sandtimer_using_subcommand run" -l open-files -d 'Open files of each of its processes' -r
complete -c sandtimer -n "__fish_sandtimer_using_subcommand run" -l on-output-limit -d 'What happens at the output limit' -r -f -a "drop\t'Drop the rest and go on'
end\t'End the run'"
complete -c sandtimer -n "__fish_sandtimer_using_subcommand run" -l warn -d 'Tell the run so long before its wall or cpu limit, such as 30s:USR1: by the signal, those of its processes that handle it; with --progress-channel by a line on the descriptor that SANDTIMER_NOTICE_FD names' -r
complete -c sandtimer -n "__fish_sandtimer_using_subcommand run" -l stall-by -d 'What resets the stall limit; `progress` needs --progress-channel or --json, for its output is not read otherwise' -r -f -a "output\t'Output, or use of the processor'
progress\t'Only that it gets further, as it reports or as its output says'"
complete -c sandtimer -n "__fish_sandtimer_using_subcommand run" -l workspace -d 'Show a directory writable at its own path; may be repeated' -r -f -a "(__fish_complete_directories)"
complete -c sandtimer -n "__fish_sandtimer_using_subcommand run" -l cwd -d 'Start in this directory' -r -f -a "(__fish_complete_directories)"
complete -c sandtimer -n "__fish_sandtimer_using_subcommand run" -l config -d 'Read the settings of this file in place of your own sandtimer.toml' -r -F
complete -c sandtimer -n "__fish_sandtimer_using_subcommand run" -l env -d 'Set a variable, or pass on one of yours; may be repeated' -r
complete -c sandtimer -n "__fish_sandtimer_using_subcommand run" -l require -d 'Refuse to run with less than this tier (T0–T3) or kill class (K0–K3); may be repeated' -r
complete -c sandtimer -n "__fish_sandtimer_using_subcommand run" -l errors -d 'What becomes of output that is not UTF-8 with --json' -r -f -a "strict\t'The stream is base64'
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
complete -c sandtimer -n "__fish_sandtimer_using_subcommand run" -l progress-channel -d 'Give it a descriptor, named by SANDTIMER_PROGRESS_FD, to report its progress to: see `sandtimer progress`'
complete -c sandtimer -n "__fish_sandtimer_using_subcommand run" -l network -d 'Give it the host\'s network'
complete -c sandtimer -n "__fish_sandtimer_using_subcommand run" -l show-credentials -d 'Show credentials (.ssh, .aws, .netrc, …) that lie in what is shown; else they are covered'
complete -c sandtimer -n "__fish_sandtimer_using_subcommand run" -l json -d 'Capture the output and print one Outcome as JSON instead'
complete -c sandtimer -n "__fish_sandtimer_using_subcommand run" -s v -l verbose -d 'Say on stderr which limits applied and who set them, what was not shown, and which walls are missing'
complete -c sandtimer -n "__fish_sandtimer_using_subcommand run" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c sandtimer -n "__fish_sandtimer_using_subcommand python" -s c -d 'Run this code instead of a file' -r
complete -c sandtimer -n "__fish_sandtimer_using_subcommand python" -l wall -l timeout -d 'Longest time, such as 2s or 1h30m; a bare number is seconds, 0 or `unlimited` is none' -r
complete -c sandtimer -n "__fish_sandtimer_using_subcommand python" -l cpu -d 'Processor time of all its processes together' -r
complete -c sandtimer -n "__fish_sandtimer_using_subcommand python" -l stall -d 'Longest time without output and without CPU use, or as --stall-by says' -r
complete -c sandtimer -n "__fish_sandtimer_using_subcommand python" -l grace -d 'Time between SIGTERM and the kill' -r
complete -c sandtimer -n "__fish_sandtimer_using_subcommand python" -l memory -d 'Memory of all its processes together, such as 512M' -r
complete -c sandtimer -n "__fish_sandtimer_using_subcommand python" -l processes -d 'Processes and threads alive at once' -r
complete -c sandtimer -n "__fish_sandtimer_using_subcommand python" -l output -d 'Bytes let through of stdout and of stderr; the rest is dropped, and said so' -r
complete -c sandtimer -n "__fish_sandtimer_using_subcommand python" -l disk -d 'Bytes in its private directories and, polled, in its workspaces' -r
complete -c sandtimer -n "__fish_sandtimer_using_subcommand python" -l open-files -d 'Open files of each of its processes' -r
complete -c sandtimer -n "__fish_sandtimer_using_subcommand python" -l on-output-limit -d 'What happens at the output limit' -r -f -a "drop\t'Drop the rest and go on'
end\t'End the run'"
complete -c sandtimer -n "__fish_sandtimer_using_subcommand python" -l warn -d 'Tell the run so long before its wall or cpu limit, such as 30s:USR1: by the signal, those of its processes that handle it; with --progress-channel by a line on the descriptor that SANDTIMER_NOTICE_FD names' -r
complete -c sandtimer -n "__fish_sandtimer_using_subcommand python" -l stall-by -d 'What resets the stall limit; `progress` needs --progress-channel or --json, for its output is not read otherwise' -r -f -a "output\t'Output, or use of the processor'
progress\t'Only that it gets further, as it reports or as its output says'"
complete -c sandtimer -n "__fish_sandtimer_using_subcommand python" -l workspace -d 'Show a directory writable at its own path; may be repeated' -r -f -a "(__fish_complete_directories)"
complete -c sandtimer -n "__fish_sandtimer_using_subcommand python" -l cwd -d 'Start in this directory' -r -f -a "(__fish_complete_directories)"
complete -c sandtimer -n "__fish_sandtimer_using_subcommand python" -l config -d 'Read the settings of this file in place of your own sandtimer.toml' -r -F
complete -c sandtimer -n "__fish_sandtimer_using_subcommand python" -l env -d 'Set a variable, or pass on one of yours; may be repeated' -r
complete -c sandtimer -n "__fish_sandtimer_using_subcommand python" -l require -d 'Refuse to run with less than this tier (T0–T3) or kill class (K0–K3); may be repeated' -r
complete -c sandtimer -n "__fish_sandtimer_using_subcommand python" -l errors -d 'What becomes of output that is not UTF-8 with --json' -r -f -a "strict\t'The stream is base64'
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
complete -c sandtimer -n "__fish_sandtimer_using_subcommand python" -l progress-channel -d 'Give it a descriptor, named by SANDTIMER_PROGRESS_FD, to report its progress to: see `sandtimer progress`'
complete -c sandtimer -n "__fish_sandtimer_using_subcommand python" -l network -d 'Give it the host\'s network'
complete -c sandtimer -n "__fish_sandtimer_using_subcommand python" -l show-credentials -d 'Show credentials (.ssh, .aws, .netrc, …) that lie in what is shown; else they are covered'
complete -c sandtimer -n "__fish_sandtimer_using_subcommand python" -l json -d 'Capture the output and print one Outcome as JSON instead'
complete -c sandtimer -n "__fish_sandtimer_using_subcommand python" -s v -l verbose -d 'Say on stderr which limits applied and who set them, what was not shown, and which walls are missing'
complete -c sandtimer -n "__fish_sandtimer_using_subcommand python" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c sandtimer -n "__fish_sandtimer_using_subcommand bash" -s c -d 'Run this code instead of a file' -r
complete -c sandtimer -n "__fish_sandtimer_using_subcommand bash" -l wall -l timeout -d 'Longest time, such as 2s or 1h30m; a bare number is seconds, 0 or `unlimited` is none' -r
complete -c sandtimer -n "__fish_sandtimer_using_subcommand bash" -l cpu -d 'Processor time of all its processes together' -r
complete -c sandtimer -n "__fish_sandtimer_using_subcommand bash" -l stall -d 'Longest time without output and without CPU use, or as --stall-by says' -r
complete -c sandtimer -n "__fish_sandtimer_using_subcommand bash" -l grace -d 'Time between SIGTERM and the kill' -r
complete -c sandtimer -n "__fish_sandtimer_using_subcommand bash" -l memory -d 'Memory of all its processes together, such as 512M' -r
complete -c sandtimer -n "__fish_sandtimer_using_subcommand bash" -l processes -d 'Processes and threads alive at once' -r
complete -c sandtimer -n "__fish_sandtimer_using_subcommand bash" -l output -d 'Bytes let through of stdout and of stderr; the rest is dropped, and said so' -r
complete -c sandtimer -n "__fish_sandtimer_using_subcommand bash" -l disk -d 'Bytes in its private directories and, polled, in its workspaces' -r
complete -c sandtimer -n "__fish_sandtimer_using_subcommand bash" -l open-files -d 'Open files of each of its processes' -r
complete -c sandtimer -n "__fish_sandtimer_using_subcommand bash" -l on-output-limit -d 'What happens at the output limit' -r -f -a "drop\t'Drop the rest and go on'
end\t'End the run'"
complete -c sandtimer -n "__fish_sandtimer_using_subcommand bash" -l warn -d 'Tell the run so long before its wall or cpu limit, such as 30s:USR1: by the signal, those of its processes that handle it; with --progress-channel by a line on the descriptor that SANDTIMER_NOTICE_FD names' -r
complete -c sandtimer -n "__fish_sandtimer_using_subcommand bash" -l stall-by -d 'What resets the stall limit; `progress` needs --progress-channel or --json, for its output is not read otherwise' -r -f -a "output\t'Output, or use of the processor'
progress\t'Only that it gets further, as it reports or as its output says'"
complete -c sandtimer -n "__fish_sandtimer_using_subcommand bash" -l workspace -d 'Show a directory writable at its own path; may be repeated' -r -f -a "(__fish_complete_directories)"
complete -c sandtimer -n "__fish_sandtimer_using_subcommand bash" -l cwd -d 'Start in this directory' -r -f -a "(__fish_complete_directories)"
complete -c sandtimer -n "__fish_sandtimer_using_subcommand bash" -l config -d 'Read the settings of this file in place of your own sandtimer.toml' -r -F
complete -c sandtimer -n "__fish_sandtimer_using_subcommand bash" -l env -d 'Set a variable, or pass on one of yours; may be repeated' -r
complete -c sandtimer -n "__fish_sandtimer_using_subcommand bash" -l require -d 'Refuse to run with less than this tier (T0–T3) or kill class (K0–K3); may be repeated' -r
complete -c sandtimer -n "__fish_sandtimer_using_subcommand bash" -l errors -d 'What becomes of output that is not UTF-8 with --json' -r -f -a "strict\t'The stream is base64'
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
complete -c sandtimer -n "__fish_sandtimer_using_subcommand bash" -l progress-channel -d 'Give it a descriptor, named by SANDTIMER_PROGRESS_FD, to report its progress to: see `sandtimer progress`'
complete -c sandtimer -n "__fish_sandtimer_using_subcommand bash" -l network -d 'Give it the host\'s network'
complete -c sandtimer -n "__fish_sandtimer_using_subcommand bash" -l show-credentials -d 'Show credentials (.ssh, .aws, .netrc, …) that lie in what is shown; else they are covered'
complete -c sandtimer -n "__fish_sandtimer_using_subcommand bash" -l json -d 'Capture the output and print one Outcome as JSON instead'
complete -c sandtimer -n "__fish_sandtimer_using_subcommand bash" -s v -l verbose -d 'Say on stderr which limits applied and who set them, what was not shown, and which walls are missing'
complete -c sandtimer -n "__fish_sandtimer_using_subcommand bash" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c sandtimer -n "__fish_sandtimer_using_subcommand node" -s c -d 'Run this code instead of a file' -r
complete -c sandtimer -n "__fish_sandtimer_using_subcommand node" -l wall -l timeout -d 'Longest time, such as 2s or 1h30m; a bare number is seconds, 0 or `unlimited` is none' -r
complete -c sandtimer -n "__fish_sandtimer_using_subcommand node" -l cpu -d 'Processor time of all its processes together' -r
complete -c sandtimer -n "__fish_sandtimer_using_subcommand node" -l stall -d 'Longest time without output and without CPU use, or as --stall-by says' -r
complete -c sandtimer -n "__fish_sandtimer_using_subcommand node" -l grace -d 'Time between SIGTERM and the kill' -r
complete -c sandtimer -n "__fish_sandtimer_using_subcommand node" -l memory -d 'Memory of all its processes together, such as 512M' -r
complete -c sandtimer -n "__fish_sandtimer_using_subcommand node" -l processes -d 'Processes and threads alive at once' -r
complete -c sandtimer -n "__fish_sandtimer_using_subcommand node" -l output -d 'Bytes let through of stdout and of stderr; the rest is dropped, and said so' -r
complete -c sandtimer -n "__fish_sandtimer_using_subcommand node" -l disk -d 'Bytes in its private directories and, polled, in its workspaces' -r
complete -c sandtimer -n "__fish_sandtimer_using_subcommand node" -l open-files -d 'Open files of each of its processes' -r
complete -c sandtimer -n "__fish_sandtimer_using_subcommand node" -l on-output-limit -d 'What happens at the output limit' -r -f -a "drop\t'Drop the rest and go on'
end\t'End the run'"
complete -c sandtimer -n "__fish_sandtimer_using_subcommand node" -l warn -d 'Tell the run so long before its wall or cpu limit, such as 30s:USR1: by the signal, those of its processes that handle it; with --progress-channel by a line on the descriptor that SANDTIMER_NOTICE_FD names' -r
complete -c sandtimer -n "__fish_sandtimer_using_subcommand node" -l stall-by -d 'What resets the stall limit; `progress` needs --progress-channel or --json, for its output is not read otherwise' -r -f -a "output\t'Output, or use of the processor'
progress\t'Only that it gets further, as it reports or as its output says'"
complete -c sandtimer -n "__fish_sandtimer_using_subcommand node" -l workspace -d 'Show a directory writable at its own path; may be repeated' -r -f -a "(__fish_complete_directories)"
complete -c sandtimer -n "__fish_sandtimer_using_subcommand node" -l cwd -d 'Start in this directory' -r -f -a "(__fish_complete_directories)"
complete -c sandtimer -n "__fish_sandtimer_using_subcommand node" -l config -d 'Read the settings of this file in place of your own sandtimer.toml' -r -F
complete -c sandtimer -n "__fish_sandtimer_using_subcommand node" -l env -d 'Set a variable, or pass on one of yours; may be repeated' -r
complete -c sandtimer -n "__fish_sandtimer_using_subcommand node" -l require -d 'Refuse to run with less than this tier (T0–T3) or kill class (K0–K3); may be repeated' -r
complete -c sandtimer -n "__fish_sandtimer_using_subcommand node" -l errors -d 'What becomes of output that is not UTF-8 with --json' -r -f -a "strict\t'The stream is base64'
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
complete -c sandtimer -n "__fish_sandtimer_using_subcommand node" -l progress-channel -d 'Give it a descriptor, named by SANDTIMER_PROGRESS_FD, to report its progress to: see `sandtimer progress`'
complete -c sandtimer -n "__fish_sandtimer_using_subcommand node" -l network -d 'Give it the host\'s network'
complete -c sandtimer -n "__fish_sandtimer_using_subcommand node" -l show-credentials -d 'Show credentials (.ssh, .aws, .netrc, …) that lie in what is shown; else they are covered'
complete -c sandtimer -n "__fish_sandtimer_using_subcommand node" -l json -d 'Capture the output and print one Outcome as JSON instead'
complete -c sandtimer -n "__fish_sandtimer_using_subcommand node" -s v -l verbose -d 'Say on stderr which limits applied and who set them, what was not shown, and which walls are missing'
complete -c sandtimer -n "__fish_sandtimer_using_subcommand node" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c sandtimer -n "__fish_sandtimer_using_subcommand ts" -s c -d 'Run this code instead of a file' -r
complete -c sandtimer -n "__fish_sandtimer_using_subcommand ts" -l wall -l timeout -d 'Longest time, such as 2s or 1h30m; a bare number is seconds, 0 or `unlimited` is none' -r
complete -c sandtimer -n "__fish_sandtimer_using_subcommand ts" -l cpu -d 'Processor time of all its processes together' -r
complete -c sandtimer -n "__fish_sandtimer_using_subcommand ts" -l stall -d 'Longest time without output and without CPU use, or as --stall-by says' -r
complete -c sandtimer -n "__fish_sandtimer_using_subcommand ts" -l grace -d 'Time between SIGTERM and the kill' -r
complete -c sandtimer -n "__fish_sandtimer_using_subcommand ts" -l memory -d 'Memory of all its processes together, such as 512M' -r
complete -c sandtimer -n "__fish_sandtimer_using_subcommand ts" -l processes -d 'Processes and threads alive at once' -r
complete -c sandtimer -n "__fish_sandtimer_using_subcommand ts" -l output -d 'Bytes let through of stdout and of stderr; the rest is dropped, and said so' -r
complete -c sandtimer -n "__fish_sandtimer_using_subcommand ts" -l disk -d 'Bytes in its private directories and, polled, in its workspaces' -r
complete -c sandtimer -n "__fish_sandtimer_using_subcommand ts" -l open-files -d 'Open files of each of its processes' -r
complete -c sandtimer -n "__fish_sandtimer_using_subcommand ts" -l on-output-limit -d 'What happens at the output limit' -r -f -a "drop\t'Drop the rest and go on'
end\t'End the run'"
complete -c sandtimer -n "__fish_sandtimer_using_subcommand ts" -l warn -d 'Tell the run so long before its wall or cpu limit, such as 30s:USR1: by the signal, those of its processes that handle it; with --progress-channel by a line on the descriptor that SANDTIMER_NOTICE_FD names' -r
complete -c sandtimer -n "__fish_sandtimer_using_subcommand ts" -l stall-by -d 'What resets the stall limit; `progress` needs --progress-channel or --json, for its output is not read otherwise' -r -f -a "output\t'Output, or use of the processor'
progress\t'Only that it gets further, as it reports or as its output says'"
complete -c sandtimer -n "__fish_sandtimer_using_subcommand ts" -l workspace -d 'Show a directory writable at its own path; may be repeated' -r -f -a "(__fish_complete_directories)"
complete -c sandtimer -n "__fish_sandtimer_using_subcommand ts" -l cwd -d 'Start in this directory' -r -f -a "(__fish_complete_directories)"
complete -c sandtimer -n "__fish_sandtimer_using_subcommand ts" -l config -d 'Read the settings of this file in place of your own sandtimer.toml' -r -F
complete -c sandtimer -n "__fish_sandtimer_using_subcommand ts" -l env -d 'Set a variable, or pass on one of yours; may be repeated' -r
complete -c sandtimer -n "__fish_sandtimer_using_subcommand ts" -l require -d 'Refuse to run with less than this tier (T0–T3) or kill class (K0–K3); may be repeated' -r
complete -c sandtimer -n "__fish_sandtimer_using_subcommand ts" -l errors -d 'What becomes of output that is not UTF-8 with --json' -r -f -a "strict\t'The stream is base64'
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
complete -c sandtimer -n "__fish_sandtimer_using_subcommand ts" -l progress-channel -d 'Give it a descriptor, named by SANDTIMER_PROGRESS_FD, to report its progress to: see `sandtimer progress`'
complete -c sandtimer -n "__fish_sandtimer_using_subcommand ts" -l network -d 'Give it the host\'s network'
complete -c sandtimer -n "__fish_sandtimer_using_subcommand ts" -l show-credentials -d 'Show credentials (.ssh, .aws, .netrc, …) that lie in what is shown; else they are covered'
complete -c sandtimer -n "__fish_sandtimer_using_subcommand ts" -l json -d 'Capture the output and print one Outcome as JSON instead'
complete -c sandtimer -n "__fish_sandtimer_using_subcommand ts" -s v -l verbose -d 'Say on stderr which limits applied and who set them, what was not shown, and which walls are missing'
complete -c sandtimer -n "__fish_sandtimer_using_subcommand ts" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c sandtimer -n "__fish_sandtimer_using_subcommand serve" -l listen -d 'Where to listen [default: 127.0.0.1:7880]: an address, of which port 0 takes a free one, or unix:PATH' -r
complete -c sandtimer -n "__fish_sandtimer_using_subcommand serve" -l state-dir -d 'Where records are kept [default: /var/lib/sandtimer for root, else ~/.local/state/sandtimer]' -r -f -a "(__fish_complete_directories)"
complete -c sandtimer -n "__fish_sandtimer_using_subcommand serve" -l token-file -d 'Who may ask: lines of a name and a token' -r -F
complete -c sandtimer -n "__fish_sandtimer_using_subcommand serve" -l keep-runs -d 'How many runs that are over are kept, up to a sixteenth more at times [default: 1000]; 0 or `unlimited` is all' -r
complete -c sandtimer -n "__fish_sandtimer_using_subcommand serve" -l keep-for -d 'How long they are kept [default: 7d]' -r
complete -c sandtimer -n "__fish_sandtimer_using_subcommand serve" -l store -d 'Where jobs are, instead of in the state directory, shared with others that work on them: nats://[USER:PASSWORD@]HOST[:PORT], tls://…, or a directory. Credentials and certificates: files that SANDTIMER_NATS_CREDENTIALS and SANDTIMER_NATS_CA name' -r -f
complete -c sandtimer -n "__fish_sandtimer_using_subcommand serve" -l job-slots -d 'Jobs that it executes at a time [default: the number of processors]; 0 leaves them to `sandtimer jobs work`' -r
complete -c sandtimer -n "__fish_sandtimer_using_subcommand serve" -l job-files -d 'Of the files that a job leaves, so many bytes are kept [default: 64M]' -r
complete -c sandtimer -n "__fish_sandtimer_using_subcommand serve" -l job-memory -d 'Memory for jobs that say how much they may have: so many are executed at a time as fit [default: 80 % of the machine\'s, or of the limit of the cgroup]; `unlimited` is as many as there are slots' -r
complete -c sandtimer -n "__fish_sandtimer_using_subcommand serve" -l drain -d 'How long jobs may continue after SIGTERM, while requests are still answered, before they are given back and the server ends [default: the 5s of open requests]; 0 and a second SIGTERM give them back at once' -r
complete -c sandtimer -n "__fish_sandtimer_using_subcommand serve" -l log -d 'What of itself it says on stderr: off, error, warn, info (runs), debug (requests) or trace [default: warn]' -r
complete -c sandtimer -n "__fish_sandtimer_using_subcommand serve" -l log-format -d 'How it is said: text or json [default: text]' -r
complete -c sandtimer -n "__fish_sandtimer_using_subcommand serve" -l interpreter-spawn-timeout-ms -d 'How long an interpreter or a shell may take to start [default: 60000]; cannot be switched off' -r
complete -c sandtimer -n "__fish_sandtimer_using_subcommand serve" -l interpreter-prewarm-timeout-ms -d 'How long a pre-warm script may take [default: 30000]; cannot be switched off' -r
complete -c sandtimer -n "__fish_sandtimer_using_subcommand serve" -l interpreter-execution-timeout-ms -d 'Wall limit of code in contexts [default: 0, unlimited]' -r
complete -c sandtimer -n "__fish_sandtimer_using_subcommand serve" -l vm-execution-timeout-ms -d 'Wall limit of JavaScript and TypeScript in contexts, beside the one of all code [default: 0, unlimited]' -r
complete -c sandtimer -n "__fish_sandtimer_using_subcommand serve" -l command-timeout-ms -d 'Wall limit of runs, and of commands in sessions [default: 0, unlimited]' -r
complete -c sandtimer -n "__fish_sandtimer_using_subcommand serve" -l max-output-size-bytes -d 'Bytes kept of stdout, and of stderr [default: 10485760]; 0 is unlimited' -r
complete -c sandtimer -n "__fish_sandtimer_using_subcommand serve" -l prewarm -d 'A script that interpreters of a language (python, javascript, bash) run before they are given out; may be repeated' -r
complete -c sandtimer -n "__fish_sandtimer_using_subcommand serve" -l pool -d 'How many interpreters of a language stand ready for each user of the server [default: python=2, javascript=1]; may be repeated' -r
complete -c sandtimer -n "__fish_sandtimer_using_subcommand serve" -l private-webhooks -d 'Let ends of jobs be told to loopback, private and link-local addresses'
complete -c sandtimer -n "__fish_sandtimer_using_subcommand serve" -l end-when-unused -d 'End when nobody is connected and nothing runs; for the server that `sandtimer mcp` starts'
complete -c sandtimer -n "__fish_sandtimer_using_subcommand serve" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c sandtimer -n "__fish_sandtimer_using_subcommand mcp" -l wall -l timeout -d 'Longest time for all that this connection starts, from now on' -r
complete -c sandtimer -n "__fish_sandtimer_using_subcommand mcp" -l turns -d 'How many calls that start something this connection may make' -r
complete -c sandtimer -n "__fish_sandtimer_using_subcommand mcp" -l stall -d 'Longest time that something it started may neither write nor compute' -r
complete -c sandtimer -n "__fish_sandtimer_using_subcommand mcp" -l workspace -d 'Show this directory, writable, at its own path to all that this connection starts; /workspace is a link to it' -r -f -a "(__fish_complete_directories)"
complete -c sandtimer -n "__fish_sandtimer_using_subcommand mcp" -l tools -d 'Which names of tools are listed: `ours`, those that agents were `trained` on, or `both`; all of them can be called [default: SANDTIMER_MCP_TOOLS, else `both`]' -r
complete -c sandtimer -n "__fish_sandtimer_using_subcommand mcp" -l state-dir -d 'Where the server keeps records, and its socket [default: `mcp` in the directory of `serve`, which SANDTIMER_STATE_DIR sets too; without that the socket is in XDG_RUNTIME_DIR]' -r -f -a "(__fish_complete_directories)"
complete -c sandtimer -n "__fish_sandtimer_using_subcommand mcp" -l network -d 'Give all that this connection starts the host\'s network, loopback included'
complete -c sandtimer -n "__fish_sandtimer_using_subcommand mcp" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c sandtimer -n "__fish_sandtimer_using_subcommand jobs; and not __fish_seen_subcommand_from submit run work list show log files get wait watch cancel retry redeliver requeue purge pause resume queues schedule schedules unschedule workers" -s h -l help -d 'Print help'
complete -c sandtimer -n "__fish_sandtimer_using_subcommand jobs; and not __fish_seen_subcommand_from submit run work list show log files get wait watch cancel retry redeliver requeue purge pause resume queues schedule schedules unschedule workers" -f -a "submit" -d 'Submit one job, or many from standard input'
complete -c sandtimer -n "__fish_sandtimer_using_subcommand jobs; and not __fish_seen_subcommand_from submit run work list show log files get wait watch cancel retry redeliver requeue purge pause resume queues schedule schedules unschedule workers" -f -a "run" -d 'Submit a job, work on it here, and wait for its end'
complete -c sandtimer -n "__fish_sandtimer_using_subcommand jobs; and not __fish_seen_subcommand_from submit run work list show log files get wait watch cancel retry redeliver requeue purge pause resume queues schedule schedules unschedule workers" -f -a "work" -d 'Execute jobs until told to end'
complete -c sandtimer -n "__fish_sandtimer_using_subcommand jobs; and not __fish_seen_subcommand_from submit run work list show log files get wait watch cancel retry redeliver requeue purge pause resume queues schedule schedules unschedule workers" -f -a "list" -d 'List jobs, the latest first'
complete -c sandtimer -n "__fish_sandtimer_using_subcommand jobs; and not __fish_seen_subcommand_from submit run work list show log files get wait watch cancel retry redeliver requeue purge pause resume queues schedule schedules unschedule workers" -f -a "show" -d 'Show everything about jobs'
complete -c sandtimer -n "__fish_sandtimer_using_subcommand jobs; and not __fish_seen_subcommand_from submit run work list show log files get wait watch cancel retry redeliver requeue purge pause resume queues schedule schedules unschedule workers" -f -a "log" -d 'Print what jobs have written'
complete -c sandtimer -n "__fish_sandtimer_using_subcommand jobs; and not __fish_seen_subcommand_from submit run work list show log files get wait watch cancel retry redeliver requeue purge pause resume queues schedule schedules unschedule workers" -f -a "files" -d 'List the files that a job has left'
complete -c sandtimer -n "__fish_sandtimer_using_subcommand jobs; and not __fish_seen_subcommand_from submit run work list show log files get wait watch cancel retry redeliver requeue purge pause resume queues schedule schedules unschedule workers" -f -a "get" -d 'Write a file that a job has left to standard output, or to a path'
complete -c sandtimer -n "__fish_sandtimer_using_subcommand jobs; and not __fish_seen_subcommand_from submit run work list show log files get wait watch cancel retry redeliver requeue purge pause resume queues schedule schedules unschedule workers" -f -a "wait" -d 'Wait until jobs are over; the exit code says how'
complete -c sandtimer -n "__fish_sandtimer_using_subcommand jobs; and not __fish_seen_subcommand_from submit run work list show log files get wait watch cancel retry redeliver requeue purge pause resume queues schedule schedules unschedule workers" -f -a "watch" -d 'Print what a job writes as it comes, or how far each of several is, until they are over'
complete -c sandtimer -n "__fish_sandtimer_using_subcommand jobs; and not __fish_seen_subcommand_from submit run work list show log files get wait watch cancel retry redeliver requeue purge pause resume queues schedule schedules unschedule workers" -f -a "cancel" -d 'End jobs'
complete -c sandtimer -n "__fish_sandtimer_using_subcommand jobs; and not __fish_seen_subcommand_from submit run work list show log files get wait watch cancel retry redeliver requeue purge pause resume queues schedule schedules unschedule workers" -f -a "retry" -d 'Queue jobs again that failed, are dead or were cancelled; their deadlines count from now'
complete -c sandtimer -n "__fish_sandtimer_using_subcommand jobs; and not __fish_seen_subcommand_from submit run work list show log files get wait watch cancel retry redeliver requeue purge pause resume queues schedule schedules unschedule workers" -f -a "redeliver" -d 'Send the webhooks of jobs that are over once more, at once'
complete -c sandtimer -n "__fish_sandtimer_using_subcommand jobs; and not __fish_seen_subcommand_from submit run work list show log files get wait watch cancel retry redeliver requeue purge pause resume queues schedule schedules unschedule workers" -f -a "requeue" -d 'Queue dead jobs again, as `retry` does one'
complete -c sandtimer -n "__fish_sandtimer_using_subcommand jobs; and not __fish_seen_subcommand_from submit run work list show log files get wait watch cancel retry redeliver requeue purge pause resume queues schedule schedules unschedule workers" -f -a "purge" -d 'Forget jobs that are over'
complete -c sandtimer -n "__fish_sandtimer_using_subcommand jobs; and not __fish_seen_subcommand_from submit run work list show log files get wait watch cancel retry redeliver requeue purge pause resume queues schedule schedules unschedule workers" -f -a "pause" -d 'Let a queue hand out nothing more'
complete -c sandtimer -n "__fish_sandtimer_using_subcommand jobs; and not __fish_seen_subcommand_from submit run work list show log files get wait watch cancel retry redeliver requeue purge pause resume queues schedule schedules unschedule workers" -f -a "resume" -d 'Let a paused queue go on'
complete -c sandtimer -n "__fish_sandtimer_using_subcommand jobs; and not __fish_seen_subcommand_from submit run work list show log files get wait watch cancel retry redeliver requeue purge pause resume queues schedule schedules unschedule workers" -f -a "queues" -d 'Show every queue: its depth and how long the oldest job has waited'
complete -c sandtimer -n "__fish_sandtimer_using_subcommand jobs; and not __fish_seen_subcommand_from submit run work list show log files get wait watch cancel retry redeliver requeue purge pause resume queues schedule schedules unschedule workers" -f -a "schedule" -d 'Store a schedule: a job that recurs, by a cron expression or at an interval'
complete -c sandtimer -n "__fish_sandtimer_using_subcommand jobs; and not __fish_seen_subcommand_from submit run work list show log files get wait watch cancel retry redeliver requeue purge pause resume queues schedule schedules unschedule workers" -f -a "schedules" -d 'List schedules, and when each is due next'
complete -c sandtimer -n "__fish_sandtimer_using_subcommand jobs; and not __fish_seen_subcommand_from submit run work list show log files get wait watch cancel retry redeliver requeue purge pause resume queues schedule schedules unschedule workers" -f -a "unschedule" -d 'Remove a schedule; jobs that it has submitted stay'
complete -c sandtimer -n "__fish_sandtimer_using_subcommand jobs; and not __fish_seen_subcommand_from submit run work list show log files get wait watch cancel retry redeliver requeue purge pause resume queues schedule schedules unschedule workers" -f -a "workers" -d 'Show every live worker: its slots, version and queues, and the jobs that it has'
complete -c sandtimer -n "__fish_sandtimer_using_subcommand jobs; and __fish_seen_subcommand_from submit" -l time-scale -d 'What every duration in the spec is multiplied by; SANDTIMER_TIME_SCALE sets it too' -r
complete -c sandtimer -n "__fish_sandtimer_using_subcommand jobs; and __fish_seen_subcommand_from submit" -l state-dir -d 'Where jobs are kept [default: /var/lib/sandtimer for root, else ~/.local/state/sandtimer]; SANDTIMER_STATE_DIR sets it too' -r -f -a "(__fish_complete_directories)"
complete -c sandtimer -n "__fish_sandtimer_using_subcommand jobs; and __fish_seen_subcommand_from submit" -l store -d 'The store: nats://[USER:PASSWORD@]HOST[:PORT], tls://…, or a directory as above; SANDTIMER_STORE sets it too. Credentials and certificates: files that SANDTIMER_NATS_CREDENTIALS and SANDTIMER_NATS_CA name' -r -f
complete -c sandtimer -n "__fish_sandtimer_using_subcommand jobs; and __fish_seen_subcommand_from submit" -l json -d 'Print JSON'
complete -c sandtimer -n "__fish_sandtimer_using_subcommand jobs; and __fish_seen_subcommand_from submit" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c sandtimer -n "__fish_sandtimer_using_subcommand jobs; and __fish_seen_subcommand_from run" -l time-scale -d 'What every duration in the spec is multiplied by; SANDTIMER_TIME_SCALE sets it too' -r
complete -c sandtimer -n "__fish_sandtimer_using_subcommand jobs; and __fish_seen_subcommand_from run" -l state-dir -d 'Where jobs are kept [default: /var/lib/sandtimer for root, else ~/.local/state/sandtimer]; SANDTIMER_STATE_DIR sets it too' -r -f -a "(__fish_complete_directories)"
complete -c sandtimer -n "__fish_sandtimer_using_subcommand jobs; and __fish_seen_subcommand_from run" -l store -d 'The store: nats://[USER:PASSWORD@]HOST[:PORT], tls://…, or a directory as above; SANDTIMER_STORE sets it too. Credentials and certificates: files that SANDTIMER_NATS_CREDENTIALS and SANDTIMER_NATS_CA name' -r -f
complete -c sandtimer -n "__fish_sandtimer_using_subcommand jobs; and __fish_seen_subcommand_from run" -l errors -d 'What becomes of output that is not UTF-8 with --json' -r -f -a "strict\t'The stream is base64'
replace\t'Each sequence of bytes that is not UTF-8 becomes U+FFFD'"
complete -c sandtimer -n "__fish_sandtimer_using_subcommand jobs; and __fish_seen_subcommand_from run" -l json -d 'Print JSON'
complete -c sandtimer -n "__fish_sandtimer_using_subcommand jobs; and __fish_seen_subcommand_from run" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c sandtimer -n "__fish_sandtimer_using_subcommand jobs; and __fish_seen_subcommand_from work" -l slots -d 'Jobs at a time' -r
complete -c sandtimer -n "__fish_sandtimer_using_subcommand jobs; and __fish_seen_subcommand_from work" -l queue -d 'Only from this queue; may be repeated' -r
complete -c sandtimer -n "__fish_sandtimer_using_subcommand jobs; and __fish_seen_subcommand_from work" -l lease -d 'How long a job stays with this worker if it says nothing more [default: 30s]; at least 1s' -r
complete -c sandtimer -n "__fish_sandtimer_using_subcommand jobs; and __fish_seen_subcommand_from work" -l drain -d 'How long jobs may continue after SIGTERM before they are given back, 0 at once [default: unlimited]; SANDTIMER_DRAIN sets it too' -r
complete -c sandtimer -n "__fish_sandtimer_using_subcommand jobs; and __fish_seen_subcommand_from work" -l files -d 'Of the files that a job leaves, so many bytes are kept [default: 64M]; SANDTIMER_JOB_FILES sets it too' -r
complete -c sandtimer -n "__fish_sandtimer_using_subcommand jobs; and __fish_seen_subcommand_from work" -l memory -d 'Memory for jobs that say how much they may have: so many are executed at a time as fit [default: 80 % of the machine\'s, or of the limit of the cgroup]; `unlimited` is as many as there are slots; SANDTIMER_JOB_MEMORY sets it too' -r
complete -c sandtimer -n "__fish_sandtimer_using_subcommand jobs; and __fish_seen_subcommand_from work" -l state-dir -d 'Where jobs are kept [default: /var/lib/sandtimer for root, else ~/.local/state/sandtimer]; SANDTIMER_STATE_DIR sets it too' -r -f -a "(__fish_complete_directories)"
complete -c sandtimer -n "__fish_sandtimer_using_subcommand jobs; and __fish_seen_subcommand_from work" -l store -d 'The store: nats://[USER:PASSWORD@]HOST[:PORT], tls://…, or a directory as above; SANDTIMER_STORE sets it too. Credentials and certificates: files that SANDTIMER_NATS_CREDENTIALS and SANDTIMER_NATS_CA name' -r -f
complete -c sandtimer -n "__fish_sandtimer_using_subcommand jobs; and __fish_seen_subcommand_from work" -l private-webhooks -d 'Let ends of jobs be told to loopback, private and link-local addresses; SANDTIMER_PRIVATE_WEBHOOKS=1 does it too'
complete -c sandtimer -n "__fish_sandtimer_using_subcommand jobs; and __fish_seen_subcommand_from work" -l json -d 'Print JSON'
complete -c sandtimer -n "__fish_sandtimer_using_subcommand jobs; and __fish_seen_subcommand_from work" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c sandtimer -n "__fish_sandtimer_using_subcommand jobs; and __fish_seen_subcommand_from list" -l most -d 'At most so many' -r
complete -c sandtimer -n "__fish_sandtimer_using_subcommand jobs; and __fish_seen_subcommand_from list" -l cursor -d 'Go on behind an earlier listing, at its `next`' -r
complete -c sandtimer -n "__fish_sandtimer_using_subcommand jobs; and __fish_seen_subcommand_from list" -l queue -d 'Only of this queue' -r
complete -c sandtimer -n "__fish_sandtimer_using_subcommand jobs; and __fish_seen_subcommand_from list" -l state -d 'Only in this state: scheduled, queued, running, ending, ok, failed, dead, cancelled; or leased, which is running and ending, or ended, which is ok and failed' -r
complete -c sandtimer -n "__fish_sandtimer_using_subcommand jobs; and __fish_seen_subcommand_from list" -l state-dir -d 'Where jobs are kept [default: /var/lib/sandtimer for root, else ~/.local/state/sandtimer]; SANDTIMER_STATE_DIR sets it too' -r -f -a "(__fish_complete_directories)"
complete -c sandtimer -n "__fish_sandtimer_using_subcommand jobs; and __fish_seen_subcommand_from list" -l store -d 'The store: nats://[USER:PASSWORD@]HOST[:PORT], tls://…, or a directory as above; SANDTIMER_STORE sets it too. Credentials and certificates: files that SANDTIMER_NATS_CREDENTIALS and SANDTIMER_NATS_CA name' -r -f
complete -c sandtimer -n "__fish_sandtimer_using_subcommand jobs; and __fish_seen_subcommand_from list" -l json -d 'Print JSON'
complete -c sandtimer -n "__fish_sandtimer_using_subcommand jobs; and __fish_seen_subcommand_from list" -s h -l help -d 'Print help'
complete -c sandtimer -n "__fish_sandtimer_using_subcommand jobs; and __fish_seen_subcommand_from show" -l errors -d 'What becomes of output that is not UTF-8 with --json' -r -f -a "strict\t'The stream is base64'
replace\t'Each sequence of bytes that is not UTF-8 becomes U+FFFD'"
complete -c sandtimer -n "__fish_sandtimer_using_subcommand jobs; and __fish_seen_subcommand_from show" -l state-dir -d 'Where jobs are kept [default: /var/lib/sandtimer for root, else ~/.local/state/sandtimer]; SANDTIMER_STATE_DIR sets it too' -r -f -a "(__fish_complete_directories)"
complete -c sandtimer -n "__fish_sandtimer_using_subcommand jobs; and __fish_seen_subcommand_from show" -l store -d 'The store: nats://[USER:PASSWORD@]HOST[:PORT], tls://…, or a directory as above; SANDTIMER_STORE sets it too. Credentials and certificates: files that SANDTIMER_NATS_CREDENTIALS and SANDTIMER_NATS_CA name' -r -f
complete -c sandtimer -n "__fish_sandtimer_using_subcommand jobs; and __fish_seen_subcommand_from show" -l json -d 'Print JSON'
complete -c sandtimer -n "__fish_sandtimer_using_subcommand jobs; and __fish_seen_subcommand_from show" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c sandtimer -n "__fish_sandtimer_using_subcommand jobs; and __fish_seen_subcommand_from log" -l errors -d 'What becomes of output that is not UTF-8 with --json' -r -f -a "strict\t'The stream is base64'
replace\t'Each sequence of bytes that is not UTF-8 becomes U+FFFD'"
complete -c sandtimer -n "__fish_sandtimer_using_subcommand jobs; and __fish_seen_subcommand_from log" -l state-dir -d 'Where jobs are kept [default: /var/lib/sandtimer for root, else ~/.local/state/sandtimer]; SANDTIMER_STATE_DIR sets it too' -r -f -a "(__fish_complete_directories)"
complete -c sandtimer -n "__fish_sandtimer_using_subcommand jobs; and __fish_seen_subcommand_from log" -l store -d 'The store: nats://[USER:PASSWORD@]HOST[:PORT], tls://…, or a directory as above; SANDTIMER_STORE sets it too. Credentials and certificates: files that SANDTIMER_NATS_CREDENTIALS and SANDTIMER_NATS_CA name' -r -f
complete -c sandtimer -n "__fish_sandtimer_using_subcommand jobs; and __fish_seen_subcommand_from log" -l timestamps -d 'Print before each line when the store took in its beginning, such as 2026-11-28T09:31:39.123Z; `-` if an earlier version stored it'
complete -c sandtimer -n "__fish_sandtimer_using_subcommand jobs; and __fish_seen_subcommand_from log" -l json -d 'Print JSON'
complete -c sandtimer -n "__fish_sandtimer_using_subcommand jobs; and __fish_seen_subcommand_from log" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c sandtimer -n "__fish_sandtimer_using_subcommand jobs; and __fish_seen_subcommand_from files" -l state-dir -d 'Where jobs are kept [default: /var/lib/sandtimer for root, else ~/.local/state/sandtimer]; SANDTIMER_STATE_DIR sets it too' -r -f -a "(__fish_complete_directories)"
complete -c sandtimer -n "__fish_sandtimer_using_subcommand jobs; and __fish_seen_subcommand_from files" -l store -d 'The store: nats://[USER:PASSWORD@]HOST[:PORT], tls://…, or a directory as above; SANDTIMER_STORE sets it too. Credentials and certificates: files that SANDTIMER_NATS_CREDENTIALS and SANDTIMER_NATS_CA name' -r -f
complete -c sandtimer -n "__fish_sandtimer_using_subcommand jobs; and __fish_seen_subcommand_from files" -l json -d 'Print JSON'
complete -c sandtimer -n "__fish_sandtimer_using_subcommand jobs; and __fish_seen_subcommand_from files" -s h -l help -d 'Print help'
complete -c sandtimer -n "__fish_sandtimer_using_subcommand jobs; and __fish_seen_subcommand_from get" -l out -d 'Where it is written to; what is there is replaced. `-` is standard output' -r -F
complete -c sandtimer -n "__fish_sandtimer_using_subcommand jobs; and __fish_seen_subcommand_from get" -l state-dir -d 'Where jobs are kept, as for the other commands' -r -f -a "(__fish_complete_directories)"
complete -c sandtimer -n "__fish_sandtimer_using_subcommand jobs; and __fish_seen_subcommand_from get" -l store -d 'The store, as for the other commands' -r -f
complete -c sandtimer -n "__fish_sandtimer_using_subcommand jobs; and __fish_seen_subcommand_from get" -s h -l help -d 'Print help'
complete -c sandtimer -n "__fish_sandtimer_using_subcommand jobs; and __fish_seen_subcommand_from wait" -l for -d 'How long at most, such as 30s; then the exit code is 75, and the jobs continue' -r
complete -c sandtimer -n "__fish_sandtimer_using_subcommand jobs; and __fish_seen_subcommand_from wait" -l errors -d 'What becomes of output that is not UTF-8 with --json' -r -f -a "strict\t'The stream is base64'
replace\t'Each sequence of bytes that is not UTF-8 becomes U+FFFD'"
complete -c sandtimer -n "__fish_sandtimer_using_subcommand jobs; and __fish_seen_subcommand_from wait" -l queue -d 'All of this queue that are not over' -r
complete -c sandtimer -n "__fish_sandtimer_using_subcommand jobs; and __fish_seen_subcommand_from wait" -l state -d 'All in this state: scheduled, queued, running, ending; or leased, which is the last two' -r
complete -c sandtimer -n "__fish_sandtimer_using_subcommand jobs; and __fish_seen_subcommand_from wait" -l state-dir -d 'Where jobs are kept [default: /var/lib/sandtimer for root, else ~/.local/state/sandtimer]; SANDTIMER_STATE_DIR sets it too' -r -f -a "(__fish_complete_directories)"
complete -c sandtimer -n "__fish_sandtimer_using_subcommand jobs; and __fish_seen_subcommand_from wait" -l store -d 'The store: nats://[USER:PASSWORD@]HOST[:PORT], tls://…, or a directory as above; SANDTIMER_STORE sets it too. Credentials and certificates: files that SANDTIMER_NATS_CREDENTIALS and SANDTIMER_NATS_CA name' -r -f
complete -c sandtimer -n "__fish_sandtimer_using_subcommand jobs; and __fish_seen_subcommand_from wait" -l all -d 'Every job of the store that has not ended, of all owners'
complete -c sandtimer -n "__fish_sandtimer_using_subcommand jobs; and __fish_seen_subcommand_from wait" -l json -d 'Print JSON'
complete -c sandtimer -n "__fish_sandtimer_using_subcommand jobs; and __fish_seen_subcommand_from wait" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c sandtimer -n "__fish_sandtimer_using_subcommand jobs; and __fish_seen_subcommand_from watch" -l errors -d 'What becomes of output that is not UTF-8 with --json' -r -f -a "strict\t'The stream is base64'
replace\t'Each sequence of bytes that is not UTF-8 becomes U+FFFD'"
complete -c sandtimer -n "__fish_sandtimer_using_subcommand jobs; and __fish_seen_subcommand_from watch" -l state-dir -d 'Where jobs are kept [default: /var/lib/sandtimer for root, else ~/.local/state/sandtimer]; SANDTIMER_STATE_DIR sets it too' -r -f -a "(__fish_complete_directories)"
complete -c sandtimer -n "__fish_sandtimer_using_subcommand jobs; and __fish_seen_subcommand_from watch" -l store -d 'The store: nats://[USER:PASSWORD@]HOST[:PORT], tls://…, or a directory as above; SANDTIMER_STORE sets it too. Credentials and certificates: files that SANDTIMER_NATS_CREDENTIALS and SANDTIMER_NATS_CA name' -r -f
complete -c sandtimer -n "__fish_sandtimer_using_subcommand jobs; and __fish_seen_subcommand_from watch" -l json -d 'Print JSON'
complete -c sandtimer -n "__fish_sandtimer_using_subcommand jobs; and __fish_seen_subcommand_from watch" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c sandtimer -n "__fish_sandtimer_using_subcommand jobs; and __fish_seen_subcommand_from cancel" -l reason -d 'Why, for the results of the jobs' -r
complete -c sandtimer -n "__fish_sandtimer_using_subcommand jobs; and __fish_seen_subcommand_from cancel" -l queue -d 'All of this queue that are not over' -r
complete -c sandtimer -n "__fish_sandtimer_using_subcommand jobs; and __fish_seen_subcommand_from cancel" -l state -d 'All in this state: scheduled, queued, running, ending; or leased, which is the last two' -r
complete -c sandtimer -n "__fish_sandtimer_using_subcommand jobs; and __fish_seen_subcommand_from cancel" -l state-dir -d 'Where jobs are kept [default: /var/lib/sandtimer for root, else ~/.local/state/sandtimer]; SANDTIMER_STATE_DIR sets it too' -r -f -a "(__fish_complete_directories)"
complete -c sandtimer -n "__fish_sandtimer_using_subcommand jobs; and __fish_seen_subcommand_from cancel" -l store -d 'The store: nats://[USER:PASSWORD@]HOST[:PORT], tls://…, or a directory as above; SANDTIMER_STORE sets it too. Credentials and certificates: files that SANDTIMER_NATS_CREDENTIALS and SANDTIMER_NATS_CA name' -r -f
complete -c sandtimer -n "__fish_sandtimer_using_subcommand jobs; and __fish_seen_subcommand_from cancel" -l all -d 'Every job of the store that has not ended, of all owners'
complete -c sandtimer -n "__fish_sandtimer_using_subcommand jobs; and __fish_seen_subcommand_from cancel" -l json -d 'Print JSON'
complete -c sandtimer -n "__fish_sandtimer_using_subcommand jobs; and __fish_seen_subcommand_from cancel" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c sandtimer -n "__fish_sandtimer_using_subcommand jobs; and __fish_seen_subcommand_from retry" -l queue -d 'All of this queue that failed, are dead or were cancelled' -r
complete -c sandtimer -n "__fish_sandtimer_using_subcommand jobs; and __fish_seen_subcommand_from retry" -l state -d 'All in this state: failed, dead, cancelled' -r
complete -c sandtimer -n "__fish_sandtimer_using_subcommand jobs; and __fish_seen_subcommand_from retry" -l state-dir -d 'Where jobs are kept [default: /var/lib/sandtimer for root, else ~/.local/state/sandtimer]; SANDTIMER_STATE_DIR sets it too' -r -f -a "(__fish_complete_directories)"
complete -c sandtimer -n "__fish_sandtimer_using_subcommand jobs; and __fish_seen_subcommand_from retry" -l store -d 'The store: nats://[USER:PASSWORD@]HOST[:PORT], tls://…, or a directory as above; SANDTIMER_STORE sets it too. Credentials and certificates: files that SANDTIMER_NATS_CREDENTIALS and SANDTIMER_NATS_CA name' -r -f
complete -c sandtimer -n "__fish_sandtimer_using_subcommand jobs; and __fish_seen_subcommand_from retry" -l all -d 'All that failed, are dead or were cancelled'
complete -c sandtimer -n "__fish_sandtimer_using_subcommand jobs; and __fish_seen_subcommand_from retry" -l json -d 'Print JSON'
complete -c sandtimer -n "__fish_sandtimer_using_subcommand jobs; and __fish_seen_subcommand_from retry" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c sandtimer -n "__fish_sandtimer_using_subcommand jobs; and __fish_seen_subcommand_from redeliver" -l state-dir -d 'Where jobs are kept [default: /var/lib/sandtimer for root, else ~/.local/state/sandtimer]; SANDTIMER_STATE_DIR sets it too' -r -f -a "(__fish_complete_directories)"
complete -c sandtimer -n "__fish_sandtimer_using_subcommand jobs; and __fish_seen_subcommand_from redeliver" -l store -d 'The store: nats://[USER:PASSWORD@]HOST[:PORT], tls://…, or a directory as above; SANDTIMER_STORE sets it too. Credentials and certificates: files that SANDTIMER_NATS_CREDENTIALS and SANDTIMER_NATS_CA name' -r -f
complete -c sandtimer -n "__fish_sandtimer_using_subcommand jobs; and __fish_seen_subcommand_from redeliver" -l json -d 'Print JSON'
complete -c sandtimer -n "__fish_sandtimer_using_subcommand jobs; and __fish_seen_subcommand_from redeliver" -s h -l help -d 'Print help'
complete -c sandtimer -n "__fish_sandtimer_using_subcommand jobs; and __fish_seen_subcommand_from requeue" -l queue -d 'Only of this queue [default: of all]' -r
complete -c sandtimer -n "__fish_sandtimer_using_subcommand jobs; and __fish_seen_subcommand_from requeue" -l state-dir -d 'Where jobs are kept [default: /var/lib/sandtimer for root, else ~/.local/state/sandtimer]; SANDTIMER_STATE_DIR sets it too' -r -f -a "(__fish_complete_directories)"
complete -c sandtimer -n "__fish_sandtimer_using_subcommand jobs; and __fish_seen_subcommand_from requeue" -l store -d 'The store: nats://[USER:PASSWORD@]HOST[:PORT], tls://…, or a directory as above; SANDTIMER_STORE sets it too. Credentials and certificates: files that SANDTIMER_NATS_CREDENTIALS and SANDTIMER_NATS_CA name' -r -f
complete -c sandtimer -n "__fish_sandtimer_using_subcommand jobs; and __fish_seen_subcommand_from requeue" -l json -d 'Print JSON'
complete -c sandtimer -n "__fish_sandtimer_using_subcommand jobs; and __fish_seen_subcommand_from requeue" -s h -l help -d 'Print help'
complete -c sandtimer -n "__fish_sandtimer_using_subcommand jobs; and __fish_seen_subcommand_from purge" -l queue -d 'Only of this queue' -r
complete -c sandtimer -n "__fish_sandtimer_using_subcommand jobs; and __fish_seen_subcommand_from purge" -l state -d 'Only in this state: ok, failed, dead, cancelled; or ended, which is the first two' -r
complete -c sandtimer -n "__fish_sandtimer_using_subcommand jobs; and __fish_seen_subcommand_from purge" -l state-dir -d 'Where jobs are kept [default: /var/lib/sandtimer for root, else ~/.local/state/sandtimer]; SANDTIMER_STATE_DIR sets it too' -r -f -a "(__fish_complete_directories)"
complete -c sandtimer -n "__fish_sandtimer_using_subcommand jobs; and __fish_seen_subcommand_from purge" -l store -d 'The store: nats://[USER:PASSWORD@]HOST[:PORT], tls://…, or a directory as above; SANDTIMER_STORE sets it too. Credentials and certificates: files that SANDTIMER_NATS_CREDENTIALS and SANDTIMER_NATS_CA name' -r -f
complete -c sandtimer -n "__fish_sandtimer_using_subcommand jobs; and __fish_seen_subcommand_from purge" -l json -d 'Print JSON'
complete -c sandtimer -n "__fish_sandtimer_using_subcommand jobs; and __fish_seen_subcommand_from purge" -s h -l help -d 'Print help'
complete -c sandtimer -n "__fish_sandtimer_using_subcommand jobs; and __fish_seen_subcommand_from pause" -l state-dir -d 'Where jobs are kept [default: /var/lib/sandtimer for root, else ~/.local/state/sandtimer]; SANDTIMER_STATE_DIR sets it too' -r -f -a "(__fish_complete_directories)"
complete -c sandtimer -n "__fish_sandtimer_using_subcommand jobs; and __fish_seen_subcommand_from pause" -l store -d 'The store: nats://[USER:PASSWORD@]HOST[:PORT], tls://…, or a directory as above; SANDTIMER_STORE sets it too. Credentials and certificates: files that SANDTIMER_NATS_CREDENTIALS and SANDTIMER_NATS_CA name' -r -f
complete -c sandtimer -n "__fish_sandtimer_using_subcommand jobs; and __fish_seen_subcommand_from pause" -l json -d 'Print JSON'
complete -c sandtimer -n "__fish_sandtimer_using_subcommand jobs; and __fish_seen_subcommand_from pause" -s h -l help -d 'Print help'
complete -c sandtimer -n "__fish_sandtimer_using_subcommand jobs; and __fish_seen_subcommand_from resume" -l state-dir -d 'Where jobs are kept [default: /var/lib/sandtimer for root, else ~/.local/state/sandtimer]; SANDTIMER_STATE_DIR sets it too' -r -f -a "(__fish_complete_directories)"
complete -c sandtimer -n "__fish_sandtimer_using_subcommand jobs; and __fish_seen_subcommand_from resume" -l store -d 'The store: nats://[USER:PASSWORD@]HOST[:PORT], tls://…, or a directory as above; SANDTIMER_STORE sets it too. Credentials and certificates: files that SANDTIMER_NATS_CREDENTIALS and SANDTIMER_NATS_CA name' -r -f
complete -c sandtimer -n "__fish_sandtimer_using_subcommand jobs; and __fish_seen_subcommand_from resume" -l json -d 'Print JSON'
complete -c sandtimer -n "__fish_sandtimer_using_subcommand jobs; and __fish_seen_subcommand_from resume" -s h -l help -d 'Print help'
complete -c sandtimer -n "__fish_sandtimer_using_subcommand jobs; and __fish_seen_subcommand_from queues" -l state-dir -d 'Where jobs are kept [default: /var/lib/sandtimer for root, else ~/.local/state/sandtimer]; SANDTIMER_STATE_DIR sets it too' -r -f -a "(__fish_complete_directories)"
complete -c sandtimer -n "__fish_sandtimer_using_subcommand jobs; and __fish_seen_subcommand_from queues" -l store -d 'The store: nats://[USER:PASSWORD@]HOST[:PORT], tls://…, or a directory as above; SANDTIMER_STORE sets it too. Credentials and certificates: files that SANDTIMER_NATS_CREDENTIALS and SANDTIMER_NATS_CA name' -r -f
complete -c sandtimer -n "__fish_sandtimer_using_subcommand jobs; and __fish_seen_subcommand_from queues" -l json -d 'Print JSON'
complete -c sandtimer -n "__fish_sandtimer_using_subcommand jobs; and __fish_seen_subcommand_from queues" -s h -l help -d 'Print help'
complete -c sandtimer -n "__fish_sandtimer_using_subcommand jobs; and __fish_seen_subcommand_from schedule" -l state-dir -d 'Where jobs are kept [default: /var/lib/sandtimer for root, else ~/.local/state/sandtimer]; SANDTIMER_STATE_DIR sets it too' -r -f -a "(__fish_complete_directories)"
complete -c sandtimer -n "__fish_sandtimer_using_subcommand jobs; and __fish_seen_subcommand_from schedule" -l store -d 'The store: nats://[USER:PASSWORD@]HOST[:PORT], tls://…, or a directory as above; SANDTIMER_STORE sets it too. Credentials and certificates: files that SANDTIMER_NATS_CREDENTIALS and SANDTIMER_NATS_CA name' -r -f
complete -c sandtimer -n "__fish_sandtimer_using_subcommand jobs; and __fish_seen_subcommand_from schedule" -l json -d 'Print JSON'
complete -c sandtimer -n "__fish_sandtimer_using_subcommand jobs; and __fish_seen_subcommand_from schedule" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c sandtimer -n "__fish_sandtimer_using_subcommand jobs; and __fish_seen_subcommand_from schedules" -l state-dir -d 'Where jobs are kept [default: /var/lib/sandtimer for root, else ~/.local/state/sandtimer]; SANDTIMER_STATE_DIR sets it too' -r -f -a "(__fish_complete_directories)"
complete -c sandtimer -n "__fish_sandtimer_using_subcommand jobs; and __fish_seen_subcommand_from schedules" -l store -d 'The store: nats://[USER:PASSWORD@]HOST[:PORT], tls://…, or a directory as above; SANDTIMER_STORE sets it too. Credentials and certificates: files that SANDTIMER_NATS_CREDENTIALS and SANDTIMER_NATS_CA name' -r -f
complete -c sandtimer -n "__fish_sandtimer_using_subcommand jobs; and __fish_seen_subcommand_from schedules" -l json -d 'Print JSON'
complete -c sandtimer -n "__fish_sandtimer_using_subcommand jobs; and __fish_seen_subcommand_from schedules" -s h -l help -d 'Print help'
complete -c sandtimer -n "__fish_sandtimer_using_subcommand jobs; and __fish_seen_subcommand_from unschedule" -l state-dir -d 'Where jobs are kept [default: /var/lib/sandtimer for root, else ~/.local/state/sandtimer]; SANDTIMER_STATE_DIR sets it too' -r -f -a "(__fish_complete_directories)"
complete -c sandtimer -n "__fish_sandtimer_using_subcommand jobs; and __fish_seen_subcommand_from unschedule" -l store -d 'The store: nats://[USER:PASSWORD@]HOST[:PORT], tls://…, or a directory as above; SANDTIMER_STORE sets it too. Credentials and certificates: files that SANDTIMER_NATS_CREDENTIALS and SANDTIMER_NATS_CA name' -r -f
complete -c sandtimer -n "__fish_sandtimer_using_subcommand jobs; and __fish_seen_subcommand_from unschedule" -l json -d 'Print JSON'
complete -c sandtimer -n "__fish_sandtimer_using_subcommand jobs; and __fish_seen_subcommand_from unschedule" -s h -l help -d 'Print help'
complete -c sandtimer -n "__fish_sandtimer_using_subcommand jobs; and __fish_seen_subcommand_from workers" -l state-dir -d 'Where jobs are kept [default: /var/lib/sandtimer for root, else ~/.local/state/sandtimer]; SANDTIMER_STATE_DIR sets it too' -r -f -a "(__fish_complete_directories)"
complete -c sandtimer -n "__fish_sandtimer_using_subcommand jobs; and __fish_seen_subcommand_from workers" -l store -d 'The store: nats://[USER:PASSWORD@]HOST[:PORT], tls://…, or a directory as above; SANDTIMER_STORE sets it too. Credentials and certificates: files that SANDTIMER_NATS_CREDENTIALS and SANDTIMER_NATS_CA name' -r -f
complete -c sandtimer -n "__fish_sandtimer_using_subcommand jobs; and __fish_seen_subcommand_from workers" -l json -d 'Print JSON'
complete -c sandtimer -n "__fish_sandtimer_using_subcommand jobs; and __fish_seen_subcommand_from workers" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c sandtimer -n "__fish_sandtimer_using_subcommand ps" -l server -d 'The server\'s address [default: http://127.0.0.1:7880]; SANDTIMER_SERVER sets it too' -r
complete -c sandtimer -n "__fish_sandtimer_using_subcommand ps" -l token-file -d 'A file that holds the token; SANDTIMER_TOKEN is the token itself' -r -F
complete -c sandtimer -n "__fish_sandtimer_using_subcommand ps" -s a -l all -d 'Runs that are over as well'
complete -c sandtimer -n "__fish_sandtimer_using_subcommand ps" -l json -d 'Print JSON'
complete -c sandtimer -n "__fish_sandtimer_using_subcommand ps" -s h -l help -d 'Print help'
complete -c sandtimer -n "__fish_sandtimer_using_subcommand logs" -l server -d 'The server\'s address [default: http://127.0.0.1:7880]; SANDTIMER_SERVER sets it too' -r
complete -c sandtimer -n "__fish_sandtimer_using_subcommand logs" -l token-file -d 'A file that holds the token; SANDTIMER_TOKEN is the token itself' -r -F
complete -c sandtimer -n "__fish_sandtimer_using_subcommand logs" -s f -l follow -d 'Go on until the run is over'
complete -c sandtimer -n "__fish_sandtimer_using_subcommand logs" -l json -d 'Print JSON'
complete -c sandtimer -n "__fish_sandtimer_using_subcommand logs" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c sandtimer -n "__fish_sandtimer_using_subcommand kill" -l reason -d 'Why, for the run\'s verdict' -r
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
complete -c sandtimer -n "__fish_sandtimer_using_subcommand estimate" -l command -d 'The command, as a line for a shell' -r
complete -c sandtimer -n "__fish_sandtimer_using_subcommand estimate" -l data-size-mb -d 'Megabytes of data that it works on' -r
complete -c sandtimer -n "__fish_sandtimer_using_subcommand estimate" -l complexity -d 'simple, moderate or complex [default: moderate]' -r
complete -c sandtimer -n "__fish_sandtimer_using_subcommand estimate" -l context -d 'Words that tell it from others of its type; they are compared, not understood' -r
complete -c sandtimer -n "__fish_sandtimer_using_subcommand estimate" -l budget -d 'How much time there is for it, such as 2h: says whether it fits' -r
complete -c sandtimer -n "__fish_sandtimer_using_subcommand estimate" -l state-dir -d 'Where the servers keep their records [default: as for `sandtimer serve`]; SANDTIMER_STATE_DIR sets it too' -r -f -a "(__fish_complete_directories)"
complete -c sandtimer -n "__fish_sandtimer_using_subcommand estimate" -l list -d 'List the types of task, with how long each takes as far as no runs are known'
complete -c sandtimer -n "__fish_sandtimer_using_subcommand estimate" -l json -d 'Print JSON'
complete -c sandtimer -n "__fish_sandtimer_using_subcommand estimate" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c sandtimer -n "__fish_sandtimer_using_subcommand progress" -l unit -d 'What is counted, such as epoch' -r
complete -c sandtimer -n "__fish_sandtimer_using_subcommand progress" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c sandtimer -n "__fish_sandtimer_using_subcommand doctor" -l require -d 'Exit with 125 unless this tier (T0–T3) or kill class (K0–K3) can be had; may be repeated' -r
complete -c sandtimer -n "__fish_sandtimer_using_subcommand doctor" -l json -d 'Print JSON'
complete -c sandtimer -n "__fish_sandtimer_using_subcommand doctor" -s h -l help -d 'Print help'
complete -c sandtimer -n "__fish_sandtimer_using_subcommand bench; and not __fish_seen_subcommand_from lateness spawn many" -s h -l help -d 'Print help'
complete -c sandtimer -n "__fish_sandtimer_using_subcommand bench; and not __fish_seen_subcommand_from lateness spawn many" -f -a "lateness" -d 'How late the wall limit\'s verdict is, over code that does not want to end'
complete -c sandtimer -n "__fish_sandtimer_using_subcommand bench; and not __fish_seen_subcommand_from lateness spawn many" -f -a "spawn" -d 'What a sandboxed run costs beside a bare process'
complete -c sandtimer -n "__fish_sandtimer_using_subcommand bench; and not __fish_seen_subcommand_from lateness spawn many" -f -a "many" -d 'What many waiting runs cost the engine'
complete -c sandtimer -n "__fish_sandtimer_using_subcommand bench; and __fish_seen_subcommand_from lateness" -l runs -d 'How many runs' -r
complete -c sandtimer -n "__fish_sandtimer_using_subcommand bench; and __fish_seen_subcommand_from lateness" -l load -d 'Beside 8 busy loops for each processor, in sandboxes'
complete -c sandtimer -n "__fish_sandtimer_using_subcommand bench; and __fish_seen_subcommand_from lateness" -l json -d 'Print JSON'
complete -c sandtimer -n "__fish_sandtimer_using_subcommand bench; and __fish_seen_subcommand_from lateness" -s h -l help -d 'Print help'
complete -c sandtimer -n "__fish_sandtimer_using_subcommand bench; and __fish_seen_subcommand_from spawn" -l rounds -d 'How many rounds; each starts every contender once' -r
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
