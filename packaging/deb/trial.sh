#!/bin/sh
# Installs, upgrades, removes and purges the package while NICs are up, and looks at each step whether all is as it should be.
#
#     trial.sh OLD.deb NEW.deb GANETI.deb
#
# For a root folder that may be spoiled, in which Debian's Ganeti is installed from GANETI.deb, and for namespaces of its own (network,
# mounts): packaging/try-package makes both, with systemd, and tests/kernel/test_package.py does, without, from the machine's own files.
# It ends with the first thing that is not right, and says which.
set -eu

old=$1 new=$2 ganeti=$3
real=/usr/lib/ganeti/3.0/usr/lib/ganeti/kvm-ifup
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export LC_ALL=C.UTF-8 DEBIAN_FRONTEND=noninteractive

step() { printf '\n## %s\n\n' "$*"; }

show() {
	printf '$ %s\n' "$*" | sed 's/^/    /'
	"$@" >"$work/output" 2>&1 && status=0 || status=$?
	sed -e '/^(Reading database/d' -e 's/^/    /' "$work/output"
	[ "$status" = 0 ] || fail "$*: exit status $status"
}

fail() {
	echo "FAILED: $*" >&2
	exit 1
}

same() { cmp "$1" "$2" >&2 || { diff "$1" "$2" >&2 || true; fail "$3"; }; }

# Every file of the system with mode, owner, size and target, but what dpkg itself, logs and caches keep.
files() {
	find /etc /usr /var -xdev \( -path /var/lib/dpkg -o -path /var/lib/systemd -o -path /var/log -o -path /var/cache -o -path /var/tmp -o -path '*/__pycache__' \) -prune -o \( -type d -printf '%M %u:%g %p\n' -o -printf '%M %u:%g %s %p %l\n' \) | sort
	sha256sum "$real" /etc/ganeti/hooks/*/* 2>/dev/null || true
}

# The host's network, but for carriers: those of taps that no guest has open mean nothing.
network() {
	ip -o link show | sed -E 's/<[^>]*>//; s/ state [A-Z]+//'
	ip rule
	ip route show table 100
	ip neighbour show proxy
}

# One call as Ganeti 3.0 makes it: repr() of the name, an environment of its own, umask 0077.
call() {
	door=$1 tap=$2
	shift 2
	(umask 0077 && cd / && env -i LC_ALL=C PATH=/usr/bin:/bin:/sbin:/usr/sbin INTERFACE="$tap" VLAN= TAGS= "$@" "$door" "b'$tap'" </dev/null)
}

bridged() { call "$1" tap0 MODE=bridged LINK=br0 BRIDGE=br0 MAC=aa:00:00:00:00:01 INSTANCE=web1.example.com INTERFACE_INDEX=0 \
	INTERFACE_UUID=00000001-0000-4000-8000-000000000000; }
routed() { call "$1" tap1 MODE=routed LINK=100 IP=10.9.0.2 MAC=aa:00:00:00:00:02 INSTANCE=db1.example.com INTERFACE_INDEX=0 \
	INTERFACE_UUID=00000002-0000-4000-8000-000000000000; }

busy() {
	ip tuntap add tap9 mode tap
	while [ ! -e "$work/enough" ]; do
		for door in kvm-ifup kvm-ifdown; do
			began=$(date +%s%N)
			call "$1/$door" tap9 MODE=bridged LINK=br0 MAC=aa:00:00:00:00:09 INSTANCE=busy INTERFACE_INDEX=0 \
				INTERFACE_UUID=00000009-0000-4000-8000-000000000000 >>"$work/said" 2>&1 && status=0 || status=$?
			echo "$status $((($(date +%s%N) - began) / 1000000)) $door" >>"$work/busy"
		done
	done
	ip link del tap9
}

# Where systemd is: shows a command, or does it.
units() { [ ! -d /run/systemd/system ] || "$@"; }
agent() { systemctl show --property MainPID --value netcommon-agent; }

step "Before: what Ganeti runs"
share=/usr/share/ganeti/default
[ ! -d $share/ganeti ] || show env PYTHONPATH=$share python3 -c 'from ganeti import pathutils as p; print(p.KVM_IFUP, p.HOOKS_BASE_DIR)'
show readlink -f /usr/lib/ganeti/kvm-ifup
files >"$work/before"
ip link set lo up
ip link add br0 address fe:00:00:00:00:99 type bridge
ip link set br0 up

step "Install"
show dpkg -i "$old"
grep -q 'next: netcommon doctor' "$work/output" && grep -q 'next: netcommon adopt --all' "$work/output" || fail "the next steps are not named"
show readlink -f /usr/lib/ganeti/kvm-ifup
show dpkg-divert --list '*netcommon*'
show cat /etc/iproute2/rt_protos.d/netcommon.conf
[ -x /usr/lib/ganeti/kvm-nic-setup ] && [ -x /etc/ganeti/hooks/instance-stop-post.d/netcommon ] || fail "doors are missing"
units show systemctl is-active netcommon-agent
units show systemctl is-enabled netcommon-agent netcommon-nics

step "Two NICs come up, through the path that Ganeti calls"
for tap in tap0 tap1; do ip tuntap add "$tap" mode tap; done
show bridged /usr/lib/ganeti/kvm-ifup
show routed /usr/lib/ganeti/kvm-ifup
show netcommon list
show netcommon check --all
show ip rule
units show sh -c 'netcommon agent status | grep calls'

step "Upgrade, while they are up and a hook is called all the time"
network >"$work/up"
units agent >"$work/agent"
busy /usr/lib/netcommon/hooks &
busy=$!
while [ "$(cat "$work/busy" 2>/dev/null | wc -l)" -lt 4 ]; do sleep 0.1; done
show dpkg -i "$new"
! grep 'netcommon: next: ' "$work/output" || fail "an upgrade names the steps after a first installation"
lines=$(($(wc -l <"$work/busy") + 4))
while [ "$(wc -l <"$work/busy")" -lt "$lines" ]; do sleep 0.1; done
touch "$work/enough"
wait "$busy"
printf '    %s\n' "hooks called meanwhile: $(wc -l <"$work/busy"), of which failed: $(grep -vc '^0 ' "$work/busy" || true), the slowest: $(sort -k2n "$work/busy" | tail -n 1 | cut -d' ' -f2) ms"
sort "$work/said" 2>/dev/null | uniq -c | sed 's/^/    /'
network >"$work/now"
same "$work/up" "$work/now" "the upgrade changed the network"
show netcommon --version
[ "netcommon $(dpkg-query -W -f '${Version}' netcommon)" = "$(netcommon --version)" ] || fail "that is not the version that is installed"
show netcommon check --all
units show systemctl is-active netcommon-agent
units [ "$(cat "$work/agent")" != "$(units agent)" ] || fail "the agent of the version before still runs"

step "Ganeti's own package is installed anew: the doors stay"
show dpkg -i "$ganeti"
call /usr/lib/ganeti/kvm-ifup tap0 MODE=bridged LINK=br0 MAC=aa:00:00:00:00:01 INSTANCE=web1.example.com INTERFACE_INDEX=0 \
	INTERFACE_UUID=00000001-0000-4000-8000-000000000000
show netcommon list

step "Remove, while they are up"
show dpkg -r netcommon
network >"$work/now"
same "$work/up" "$work/now" "the removal changed the network"
show readlink -f /usr/lib/ganeti/kvm-ifup
units show systemctl list-timers --no-pager --no-legend netcommon-leaving.timer
# Configuration files stay until a purge, and so does what is enabled.
files | grep -v -e ' /etc/default/netcommon' -e '/rt_protos.d/netcommon' -e '/multi-user.target.wants/netcommon-' >"$work/now"
same "$work/before" "$work/now" "the removal left something, or Ganeti's own script is not back"

step "Their guests end: what stays on the host is undone"
for tap in tap0 tap1; do ip link del "$tap"; done
show ip rule
if [ -d /run/systemd/system ]; then show systemctl start netcommon-leaving.service; else show python3 -IS /run/netcommon/leaving/leave.py; fi
show ip rule
ip rule | grep -q tap1 && fail "the rule of tap1 is still there"
[ ! -e /run/netcommon ] || fail "/run/netcommon is still there"
units sh -c '! systemctl --quiet is-active netcommon-leaving.timer' || fail "the timer is still there"

step "Removed and put back, while a NIC is up"
show dpkg -i "$new"
ip tuntap add tap1 mode tap
show routed /usr/lib/ganeti/kvm-ifup
dpkg -r netcommon >/dev/null
show dpkg -i "$new"
[ ! -e /run/netcommon/leaving ] || fail "the copy is still there"
show netcommon check --all
show routed /usr/lib/netcommon/hooks/kvm-ifdown
ip link del tap1

step "A site's own script: its owner is asked, and the package is installed all the same"
dpkg -P netcommon >/dev/null
printf '#!/bin/sh\n' >/etc/ganeti/kvm-vif-bridge
chmod 755 /etc/ganeti/kvm-vif-bridge
show dpkg -i "$new"
mkdir -p /etc/netcommon
printf '[custom]\norder = "after"\n' >/etc/netcommon/config.toml
show dpkg-reconfigure netcommon
readlink -f /usr/lib/ganeti/kvm-nic-setup >/dev/null
rm /etc/ganeti/kvm-vif-bridge

step "What the doors load lies beside them"
show python3 -IS -c 'import sys; sys.path.insert(0, "/usr/lib/netcommon")
from netcommon import templates; from netcommon.dns import library
print(templates.render("a.j2", {"what": "jinja2"}, lambda name: "{{ what }} works"))
library.find(); import dns.version; print("dnspython", dns.version.version)'

step "Xen, and plain QEMU"
mkdir -p /etc/xen/scripts
ln -s /usr/lib/ganeti/vif-ganeti /etc/xen/scripts/vif-ganeti
[ -e /etc/qemu-ifup ] || { printf '#!/bin/sh\n' >/etc/qemu-ifup && chmod 755 /etc/qemu-ifup; made=/etc/qemu-ifup; }
sha256sum /etc/qemu-ifup >"$work/qemu"
show dpkg-reconfigure netcommon
show netcommon install --qemu
grep -q netcommon-door /etc/xen/scripts/vif-ganeti || fail "vif-ganeti is not our door"
dpkg -r netcommon >/dev/null
show readlink /etc/xen/scripts/vif-ganeti
show sha256sum --check "$work/qemu"
rm -r /etc/xen ${made:-}
dpkg -i "$new" >/dev/null 2>&1

step "Purge"
show dpkg -P netcommon
files >"$work/now"
same "$work/before" "$work/now" "the purge left something"
echo "    every file of the system is as before"

step "Ganeti goes first"
show dpkg -i "$new"
show dpkg -r --force-depends ganeti ganeti-3.0
show dpkg -P netcommon
[ ! -e "$real" ] || fail "$real is still there"
[ ! -e /etc/netcommon ] && [ ! -e /var/lib/netcommon ] && [ ! -e /usr/lib/netcommon ] || fail "something is left"
