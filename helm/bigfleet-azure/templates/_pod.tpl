{{/* Parts of the pod: variables, probes, and the files that flags name. */}}

{{- define "bigfleet-azure.env" -}}
{{- with include "bigfleet-azure.evictionSecret" . }}
- name: BIGFLEET_EVICTION_TOKEN
  valueFrom:
    secretKeyRef:
      name: {{ . }}
      key: {{ $.Values.evictionTokenSecret.key }}
{{- end }}
{{- with .Values.azure.clientSecret.existingSecret }}
- name: AZURE_CLIENT_SECRET
  valueFrom:
    secretKeyRef:
      name: {{ . }}
      key: {{ $.Values.azure.clientSecret.key }}
{{- end }}
{{- with .Values.extraEnv }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{/* Of what is read at start only, so that a change of it starts the pod anew. */}}
{{- define "bigfleet-azure.checksums" -}}
{{- range $name, $content := dict
  "offerings" .Values.offerings.content
  "prices" .Values.prices.content
  "base-user-data" .Values.baseUserData.content
  "eviction-token" .Values.evictionToken
  "files" (print .Values.azure.sshPublicKey .Values.azure.armCa) }}
{{- if $content }}
checksum/{{ $name }}: {{ sha256sum $content }}
{{- end }}
{{- end }}
{{- end -}}

{{/* gRPC opens only when the first inventory is there, so its startup probe has to be patient. */}}
{{- define "bigfleet-azure.probes" -}}
{{- $type := .Values.probes.type -}}
{{- if ne $type "none" -}}
{{- range $probe, $path := dict "startup" "/healthz" "liveness" "/healthz" "readiness" "/readyz" }}
{{ $probe }}Probe:
  {{- if eq $type "grpc" }}
  grpc:
    port: {{ int $.Values.ports.grpc }}
  {{- else }}
  httpGet:
    path: {{ $path }}
    port: metrics
  {{- end }}
  {{- with get $.Values.probes $probe }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- end }}
{{- end -}}
{{- end -}}

{{/* Name, folder and kind of each read-only volume of files, as YAML. */}}
{{- define "bigfleet-azure.fileVolumes" -}}
{{- with include "bigfleet-azure.offerings" . }}
- {name: offerings, configMap: {{ . }}, key: {{ $.Values.offerings.key | quote }}, path: offerings.json}
{{- end }}
{{- with include "bigfleet-azure.prices" . }}
- {name: prices, configMap: {{ . }}, key: {{ $.Values.prices.key | quote }}, path: prices.json}
{{- end }}
{{- if include "bigfleet-azure.files" . }}
- {name: files, configMap: {{ include "bigfleet-azure.fullname" . }}-files}
{{- end }}
{{- with include "bigfleet-azure.userData" . }}
- {name: user-data, secret: {{ . }}, key: {{ $.Values.baseUserData.key | quote }}, path: base-user-data}
{{- end }}
{{- with include "bigfleet-azure.stateKeySecret" . }}
- {name: state-key, secret: {{ . }}, key: {{ $.Values.state.key.key | quote }}, path: state-key}
{{- end }}
{{- with include "bigfleet-azure.kubeconfigs" . }}
- {name: kubeconfigs, secret: {{ . }}}
{{- end }}
{{- if .Values.tls.enabled }}
- {name: tls, secret: {{ include "bigfleet-azure.tlsSecret" . }}}
{{- end }}
{{- if .Values.callback.enabled }}
- {name: callback-keys, secret: {{ include "bigfleet-azure.callbackSecret" . }}, key: {{ .Values.callback.keys.key | quote }}, path: callback-keys}
{{- with .Values.callback.tls.secretName }}
- {name: callback-tls, secret: {{ . }}}
{{- end }}
{{- end }}
{{- end -}}

{{- define "bigfleet-azure.mounts" -}}
{{- /* Client libraries put certificates of kubeconfigs into temporary files. */}}
- name: tmp
  mountPath: /tmp
{{- if .Values.state.enabled }}
- name: state
  mountPath: {{ dir .Values.state.path }}
{{- end }}
{{- range include "bigfleet-azure.fileVolumes" . | fromYamlArray }}
- name: {{ .name }}
  mountPath: /etc/bigfleet/{{ .name }}
  readOnly: true
{{- end }}
{{- with .Values.extraVolumeMounts }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{- define "bigfleet-azure.volumes" -}}
- name: tmp
  emptyDir:
    sizeLimit: 64Mi
{{- if .Values.state.enabled }}
- name: state
  {{- if .Values.state.persistence.enabled }}
  persistentVolumeClaim:
    claimName: {{ default (printf "%s-state" (include "bigfleet-azure.fullname" .)) .Values.state.persistence.existingClaim }}
  {{- else }}
  emptyDir: {}
  {{- end }}
{{- end }}
{{- range include "bigfleet-azure.fileVolumes" . | fromYamlArray }}
- name: {{ .name }}
  {{- if .secret }}
  secret:
    secretName: {{ .secret }}
    # The group is the pod's fsGroup.
    defaultMode: 0440
  {{- else }}
  configMap:
    name: {{ .configMap }}
  {{- end }}
    {{- if .key }}
    items:
      - key: {{ .key | quote }}
        path: {{ .path }}
    {{- end }}
{{- end }}
{{- with .Values.extraVolumes }}
{{ toYaml . }}
{{- end }}
{{- end -}}
