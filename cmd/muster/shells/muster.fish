# What fish completes of muster's command lines. Made by: muster completion fish
function __muster_complete
    set -l words (commandline -opc)
    set -l word (commandline -ct)
    set -l program (string replace -r '^~' $HOME -- $words[1])
    set -e words[1]
    set -l lines ($program complete -- $words $word 2>/dev/null)
    set -l kind $lines[1]
    set -e lines[1]
    printf '%s\n' $lines
    set -l files nobodys-program-$fish_pid $word # fish itself knows quotes, ~, and --flag=value before a file's name
    switch "$kind"
        case files
            complete -C"$files"
        case directories
            complete -C"$files" | string match -r '.*/$'
        case commands
            __fish_complete_command
    end
end
complete -c muster -f -a '(__muster_complete)'
