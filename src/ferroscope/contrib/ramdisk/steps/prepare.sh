# Runs after our files were added: services, certificates, and only the firmware that a module asks for.
root=$1
if added=$(ls "$root/usr/local/share/ca-certificates") && [ -n "$added" ]; then
    chroot "$root" update-ca-certificates
fi
chroot "$root" systemctl preset-all
if [ -d "$root/lib/firmware" ]; then
    chroot "$root" sh -c "find /lib/modules/ -name '*.ko*' -print0 | xargs -0 modinfo -F firmware" |
        sort -u >"$root/.ferroscope/wanted"
    cd "$root/lib/firmware"
    while read -r name; do
        for file in $name; do # some have wildcards
            [ -e "$file" ] && printf '%s\n' "./$file" "./$(realpath --relative-to=. "$file")"
        done
    done <"$root/.ferroscope/wanted" | sort -u >"$root/.ferroscope/kept"
    find . '(' -type f -o -type l ')' | sort | comm -23 - "$root/.ferroscope/kept" | tr '\n' '\0' | xargs -0 -r rm -f
    find . -mindepth 1 -type d -empty -delete
    rm "$root/.ferroscope/wanted" "$root/.ferroscope/kept"
fi
