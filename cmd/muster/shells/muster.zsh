#compdef muster
# What zsh completes of muster's command lines. Made by: muster completion zsh
_muster() {
	local -a lines found
	local kind line
	lines=("${(@f)$(${(Q)words[1]/#\~/$HOME} complete -- "${(@Q)words[2,CURRENT]}" 2>/dev/null)}")
	kind=$lines[1]
	for line in "${(@)lines[2,-1]}"; do
		found+=("${${line%%$'\t'*}//:/\\:}:${line#*$'\t'}")
	done
	(($#found)) && _describe -V muster found
	case $kind in
	files) compset -P '*='; _files ;;
	directories) compset -P '*='; _files -/ ;;
	commands) _command_names -e; _files ;;
	esac
}
if [[ $funcstack[1] == _muster ]]; then _muster "$@"; else compdef _muster muster; fi
