# What bash completes of muster's command lines; bash 4.4 or newer. Made by: muster completion bash
_muster() {
	local i word joined='' words=() kind='' rest
	for ((i = 1; i <= COMP_CWORD; i++)); do # bash takes --flag=value and host:port apart
		word=${COMP_WORDS[i]}
		if [[ ${#words[@]} -gt 0 && ($joined || $word == [=:]*) ]]; then words[-1]+=$word; else words+=("$word"); fi
		if [[ $word == *[=:] ]]; then joined=yes; else joined=''; fi
	done
	word=${words[-1]}
	COMPREPLY=()
	while IFS=$'\t' read -r i rest; do
		if [[ ! $kind ]]; then kind=$i; else COMPREPLY+=("${i#"${word%"${word##*[=:]}"}"}"); fi
	done < <("${COMP_WORDS[0]/#\~/$HOME}" complete -- "${words[@]}" 2>/dev/null)
	case $kind in
	files) compopt -o default -o filenames ;;
	directories) compopt -o dirnames ;;
	commands) compopt -o default -o filenames && mapfile -t -O ${#COMPREPLY[@]} COMPREPLY < <(compgen -c -- "$word") ;;
	esac
}
complete -F _muster muster
