"""Completion for bash and zsh as plain files: neither a shell's start nor a Tab runs Python.

Names of NICs are those of the files on the node.
"""

from __future__ import annotations

from collections.abc import Iterator

from pages.commands import PROGRAMS, Command, Option, everything, leaves

MADE = "# Made by packaging/make-man from the command line: change that, and run it."

#: Where the names of NICs are files: devices, UUIDs of records and definitions, and INSTANCE/INDEX.
STATE, DEFINED = "/run/netcommon", "/etc/netcommon/nics.d"
#: Where the registry's service keeps the names of what it has, a file a kind.
REGISTRY = "/run/netregistry/names"


def files() -> dict[str, str]:
    """The files of packaging/completion: name -> text."""
    made: dict[str, str] = {}
    for root in map(everything, PROGRAMS):
        made |= {root.program: "\n".join(bash(root)) + "\n", f"_{root.program}": "\n".join(zsh(root)) + "\n"}
    return made


def bash(root: Command) -> Iterator[str]:
    """Needs bash alone, not the package bash-completion."""
    yield from (MADE, "")
    if root.program == "netcommon":
        yield f"""_netcommon_nics()
{{
    local path
    shopt -s nullglob  # of the subshell that this runs in
    for path in {STATE}/devices/*; do printf '%s\\n' "${{path##*/}}"; done
    for path in {STATE}/nics/*.json {DEFINED}/*.toml; do path="${{path##*/}}"; printf '%s\\n' "${{path%.*}}"; done
    for path in {STATE}/instances/*/*; do printf '%s\\n' "${{path#{STATE}/instances/}}"; done
    for path in {DEFINED}/by-device/*; do printf '%s\\n' "${{path##*/}}"; done
}}

_netcommon_registry()
{{
    local -a names
    [[ -r "{REGISTRY}/$1" ]] && mapfile -t names < "{REGISTRY}/$1"
    for word in "${{names[@]}}"; do if [[ "$word" == "$cur"* ]]; then printf '%s\\n' "$word"; fi; done
}}
"""
    yield f"_{root.program}()\n{{"
    yield '    local cur="${COMP_WORDS[COMP_CWORD]}" prev="${COMP_WORDS[COMP_CWORD-1]}" word command="" words="" names=""'
    yield "    COMPREPLY=()"
    yield '    for word in "${COMP_WORDS[@]:1:COMP_CWORD-1}"; do'
    groups = [one for one in leaves(root) if one.inner]
    yield '        case "$command/$word" in'
    yield "            /-*) ;;"
    yield '            /*) command="$word" ;;'
    for group in groups:
        above = " ".join(group.words)
        patterns = [f'"{above}"/{inner.words[-1]}' for inner in group.inner]
        yield f'            {"|".join(patterns)}) command="{above} $word" ;;'
    yield "        esac"
    yield "    done"
    yield '    case "$command $prev" in'
    for one in leaves(root):
        for option in one.options:
            if not option.value:
                continue
            pattern = "|".join(f'"{" ".join(one.words)} {name}"' for name in option.names)
            if option.file:
                yield f'        {pattern}) compopt -o filenames; mapfile -t COMPREPLY < <(compgen -f -- "$cur"); return ;;'
            else:
                answer = f'mapfile -t COMPREPLY < <(compgen -W "{" ".join(option.choices)}" -- "$cur"); ' if option.choices else ""
                yield f"        {pattern}) {answer}return ;;"
    yield "    esac"
    yield '    case "$command" in'
    for one in (root, *leaves(root)):
        plain = [name for option in one.options for name in option.names]
        others = [inner.words[-1] for inner in one.inner] + list(one.choices)
        said = f'names="_netcommon_{one.names}"' if one.names else f'words="{" ".join(others)}"'
        yield f'        "{" ".join(one.words)}") case "$cur" in -*) words="{" ".join(plain)}" ;; *) {said} ;; esac ;;'
    yield "    esac"
    yield '    mapfile -t COMPREPLY < <(compgen -W "$words" -- "$cur")'
    # not by compgen -W, which expands what it is given: an instance may be called $(command), and is quoted where it is put
    yield """    [[ -z "$names" ]] || while IFS= read -r word; do
        if [[ "$word" == "$cur"* ]]; then printf -v word %q "$word"; COMPREPLY+=("$word"); fi
    done < <($names)"""
    yield "}"
    yield ""
    yield f"complete -F _{root.program} {root.program}"


def zsh(root: Command) -> Iterator[str]:
    """An autoloaded function."""
    yield from (f"#compdef {root.program}", MADE, "")
    if root.program == "netcommon":
        yield f"""_netcommon_nics() {{
    local -a names instances
    names=({STATE}/devices/*(N:t) {STATE}/nics/*.json(N:t:r) {DEFINED}/*.toml(N:t:r) {DEFINED}/by-device/*(N:t))
    instances=({STATE}/instances/*/*(N))
    names+=(${{instances#{STATE}/instances/}})
    _describe -t nics 'NIC' names
}}

_netcommon_registry() {{
    local -a names
    [[ -r {REGISTRY}/$1 ]] && names=("${{(@f)$(<{REGISTRY}/$1)}}")
    compadd -a names
}}
"""
    for one in (root, *leaves(root)):
        yield from _function(one)
    yield f'_{root.program} "$@"'


def _function(one: Command) -> Iterator[str]:
    yield f"{_name(one)}() {{"
    specs = [_spec(option) for option in one.options]
    if one.inner:
        yield '    local curcontext="$curcontext" state line'
        yield "    local -a commands"
        yield "    commands=(" + " ".join(_quoted(f"{inner.words[-1]}:{inner.short.rstrip('.')}") for inner in one.inner) + ")"
        yield "    _arguments -C " + " ".join([*specs, "'1: :->command'", "'*:: :->argument'"])
        yield '    case "$state" in'
        yield "        command) _describe -t commands 'command' commands ;;"
        yield '        argument) case "$line[1]" in'
        for inner in one.inner:
            yield f"            {inner.words[-1]}) {_name(inner)} ;;"
        yield "        esac ;;"
        yield "    esac"
    else:
        rest = [f"'1: :({' '.join(one.choices)})'"] if one.choices else []
        if one.names:
            rest = [f"'*:{'NIC' if one.names == 'nics' else one.names.split()[1][:-1]}:_netcommon_{one.names}'"]
        yield "    _arguments -S " + " ".join([*specs, *rest])
    yield "}"
    yield ""


def _name(one: Command) -> str:
    return "_".join((f"_{one.program}", *one.words))


def _spec(option: Option) -> str:
    """As _arguments wants it: names, help, and what follows."""
    said = option.help.rstrip(".").translate({ord(each): f"\\{each}" for each in "[]:\\"})
    value = ""
    if option.value:
        action = f"({' '.join(option.choices)})" if option.choices else "_files" if option.file else " "
        value = f":{option.value.partition('|')[0].lower() if option.choices else option.value}:{action}"
    every = "*" if option.many else ""
    if len(option.names) == 1:
        return _quoted(f"{every}{option.names[0]}[{said}]{value}")
    return f"{_quoted('(' + ' '.join(option.names) + ')')}{{{','.join(option.names)}}}{_quoted(f'[{said}]{value}')}"


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "'\\''") + "'"
