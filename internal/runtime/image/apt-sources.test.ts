import { describe, expect, it } from 'vitest'
import { distributionSources, formatAptSource, parseAptSources, parseOsRelease } from './apt-sources.ts'

const debian = { id: 'debian', codename: 'bookworm' }
const deb822 = {
  path: '/etc/apt/sources.list.d/distribution.sources',
  text: `# written by the installer
Types: deb
# an older place
URIs: http://mirror.example/debian
Suites: bookworm bookworm-updates
Components: main contrib
Signed-By: /usr/share/keyrings/debian-archive-keyring.gpg

Types: deb deb-src
URIs: http://mirror.example/debian-security/
Suites: bookworm-security
Components: main

Enabled: no
Types: deb
URIs: http://mirror.example/debian
Suites: bookworm-backports
Components: main
`,
}
const vendor = {
  path: '/etc/apt/sources.list.d/a-vendor.list',
  text: 'deb [arch=amd64 signed-by=/etc/apt/keyrings/vendor.gpg] https://vendor.example/linux/debian bookworm main # ours\n',
}

describe('apt sources', () => {
  it('reads both notations and skips what is switched off or commented out', () => {
    const sources = parseAptSources([
      vendor,
      deb822,
      { path: 'x.list', text: '# deb http://no.example/ x main\n' },
    ])
    expect(sources.map(({ suite }) => suite)).toEqual([
      'bookworm',
      'bookworm',
      'bookworm-updates',
      'bookworm-security',
    ])
    expect(sources[0]).toEqual({
      uri: 'https://vendor.example/linux/debian',
      suite: 'bookworm',
      components: ['main'],
      signed_by: '/etc/apt/keyrings/vendor.gpg',
    })
  })

  it("takes the distribution's own entries, also when a vendor's comes first and looks alike", () => {
    const chosen = distributionSources(parseAptSources([vendor, deb822]), debian)
    expect(chosen.map(formatAptSource)).toEqual([
      'deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] http://mirror.example/debian bookworm main contrib',
      'deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] http://mirror.example/debian bookworm-updates main contrib',
      'deb http://mirror.example/debian-security/ bookworm-security main',
    ])
  })

  it("knows a company's mirror by what it carries, not by its name", () => {
    const text = `deb https://vendor.example/debian/12/prod bookworm main
deb https://artifacts.corp.example/apt-proxy/ bookworm main
deb https://artifacts.corp.example/apt-proxy/ bookworm-updates main
deb cdrom:[Debian]/ bookworm main
`
    const chosen = distributionSources(parseAptSources([{ path: '/etc/apt/sources.list', text }]), debian)
    expect(chosen.map(({ uri }) => uri)).toEqual(Array(2).fill('https://artifacts.corp.example/apt-proxy/'))
  })

  it('leaves a key that is written into the file to the default keyrings', () => {
    const text = `Types: deb
URIs: http://mirror.example/ubuntu/
Suites: noble noble-updates
Components: main universe
Signed-By:
 -----BEGIN PGP PUBLIC KEY BLOCK-----
 .
 mDMEY865UxYJKwYBBAHaRw8BAQdAd7Z0srwuhlB6JKFkcf4HU4SSS
 -----END PGP PUBLIC KEY BLOCK-----
`
    const [main] = distributionSources(parseAptSources([{ path: 'u.sources', text }]), {
      id: 'ubuntu',
      codename: 'noble',
    })
    expect(main).toEqual({
      uri: 'http://mirror.example/ubuntu/',
      suite: 'noble',
      components: ['main', 'universe'],
    })
  })

  it('finds nothing on a machine of another kind', () => {
    expect(distributionSources(parseAptSources([vendor]), { id: 'debian', codename: 'trixie' })).toEqual([])
    expect(parseOsRelease('ID=alpine\nVERSION_ID=3.20\n')).toBeUndefined()
    expect(parseOsRelease('NAME="Debian"\nVERSION_CODENAME=bookworm\nID=debian\n')).toEqual(debian)
  })
})
