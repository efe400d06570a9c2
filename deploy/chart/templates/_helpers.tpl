{{- define "tidemill.image" -}}
{{- $image := .Values.image -}}
{{- if not $image.repository -}}
{{- fail "set image.repository to the image that you built from deploy/Containerfile, for example registry.example.com/tidemill" -}}
{{- end -}}
{{- if $image.digest -}}
{{ $image.repository }}@{{ $image.digest }}
{{- else -}}
{{ $image.repository }}:{{ $image.tag | default .Chart.AppVersion }}
{{- end -}}
{{- end -}}

{{- define "tidemill.labels" -}}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}
app.kubernetes.io/part-of: tidemill
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end -}}

{{- define "tidemill.podSecurity" -}}
runAsNonRoot: true
runAsUser: 65532
runAsGroup: 65532
fsGroup: 65532
seccompProfile: {type: RuntimeDefault}
{{- end -}}

{{- define "tidemill.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: {drop: [ALL]}
{{- end -}}

{{- define "tidemill.offOurNodes" -}}
nodeAffinity:
  requiredDuringSchedulingIgnoredDuringExecution:
    nodeSelectorTerms:
      - matchExpressions: [{key: tidemill.dev/pool, operator: DoesNotExist}]
{{- end -}}

{{- /* What belongs to each other but is set apart: one sentence for each mistake. */ -}}
{{- define "tidemill.check" -}}
{{- $ledger := .Values.ledger -}}
{{- if and (eq $ledger.type "sqlite") (gt (int .Values.controller.replicas) 1) -}}
{{- fail (printf "controller.replicas is %d, but a ledger on SQLite allows one: set ledger.type=postgresql, or controller.replicas=1" (int .Values.controller.replicas)) -}}
{{- end -}}
{{- if eq $ledger.type "postgresql" -}}
{{- if not $ledger.postgresql.host -}}
{{- fail "ledger.type is postgresql: set ledger.postgresql.host" -}}
{{- end -}}
{{- if not $ledger.postgresql.existingSecret -}}
{{- fail "ledger.type is postgresql: set ledger.postgresql.existingSecret to the name of a Secret with the password (kubectl create secret generic NAME --from-file=password)" -}}
{{- end -}}
{{- end -}}
{{- $documents := .Values.documents -}}
{{- $sources := 0 -}}
{{- if $documents.fromCluster }}{{ $sources = add1 $sources }}{{ end -}}
{{- if $documents.files }}{{ $sources = add1 $sources }}{{ end -}}
{{- if $documents.existingConfigMap }}{{ $sources = add1 $sources }}{{ end -}}
{{- if ne (int $sources) 1 -}}
{{- fail "the documents come from one place: documents.fromCluster=true, or documents.fromCluster=false with documents.files or documents.existingConfigMap" -}}
{{- end -}}
{{- $admission := .Values.admission -}}
{{- if and (eq $admission.mode "webhook") $admission.webhook.existingSecret (not $admission.webhook.caBundle) -}}
{{- fail "admission.webhook.existingSecret needs admission.webhook.caBundle, the certificate authority that signed it" -}}
{{- end -}}
{{- if and (eq $admission.mode "policy") (lookup "v1" "Namespace" "" "kube-system") (semverCompare "<1.36-0" .Capabilities.KubeVersion.Version) -}}
{{- fail (printf "Kubernetes %s does not serve MutatingAdmissionPolicy v1 (1.36 and later do): set admission.mode=webhook" .Capabilities.KubeVersion.Version) -}}
{{- end -}}
{{- end -}}

{{- /* Not empty: a process of its own buys. */ -}}
{{- define "tidemill.purchaserApart" -}}
{{- if and .Values.purchaser.enabled (eq .Values.ledger.type "postgresql") }}apart{{ end -}}
{{- end -}}

{{- /* The ledger's address. The password is not in it. */ -}}
{{- define "tidemill.ledger" -}}
{{- if eq .Values.ledger.type "sqlite" -}}
sqlite:////var/lib/tidemill/ledger.db
{{- else -}}
{{- $pg := .Values.ledger.postgresql -}}
postgresql://{{ $pg.user }}@{{ $pg.host }}:{{ $pg.port }}/{{ $pg.database }}?sslmode={{ $pg.sslmode }}&password_file=/etc/tidemill/ledger/password
{{- end -}}
{{- end -}}

{{- define "tidemill.documentArgs" -}}
{{- if .Values.documents.fromCluster }}
- --from-cluster
{{- else }}
- --file
- /etc/tidemill/documents
{{- end }}
{{- end -}}

{{- define "tidemill.ceilings" -}}
{{- with .Values.ceilings }}
{{- if not (kindIs "invalid" .maxFeeUsd) }}
- {name: TIDEMILL_MAX_FEE_USD, value: {{ int64 .maxFeeUsd | quote }}}
{{- end }}
{{- if not (kindIs "invalid" .monthlyUsd) }}
- {name: TIDEMILL_MONTHLY_USD, value: {{ int64 .monthlyUsd | quote }}}
{{- end }}
{{- if .approval }}
- {name: TIDEMILL_APPROVAL, value: {{ .approval | quote }}}
{{- end }}
{{- if .approvers }}
- {name: TIDEMILL_APPROVERS, value: {{ join "," .approvers | quote }}}
{{- end }}
{{- end }}
{{- end -}}

{{- /* Mounts and volumes that the controller and the purchaser share. */ -}}
{{- define "tidemill.mounts" -}}
- {name: tmp, mountPath: /tmp}
{{- if eq .Values.ledger.type "sqlite" }}
- {name: ledger, mountPath: /var/lib/tidemill}
{{- else }}
- {name: ledger-password, mountPath: /etc/tidemill/ledger, readOnly: true}
{{- end }}
{{- if not .Values.documents.fromCluster }}
- {name: documents, mountPath: /etc/tidemill/documents, readOnly: true}
{{- end }}
{{- end -}}

{{- define "tidemill.volumes" -}}
- name: tmp
  emptyDir: {sizeLimit: 64Mi}
{{- if eq .Values.ledger.type "sqlite" }}
- name: ledger
  persistentVolumeClaim:
    claimName: {{ .Values.ledger.sqlite.existingClaim | default "tidemill-ledger" }}
{{- else }}
- name: ledger-password
  secret:
    secretName: {{ .Values.ledger.postgresql.existingSecret }}
    defaultMode: 0440
    items: [{key: {{ .Values.ledger.postgresql.passwordKey }}, path: password}]
{{- end }}
{{- if not .Values.documents.fromCluster }}
- name: documents
  configMap:
    name: {{ .Values.documents.existingConfigMap | default "tidemill-documents" }}
{{- end }}
{{- end -}}

{{- define "tidemill.probes" -}}
livenessProbe:
  httpGet: {path: /healthz, port: metrics}
  periodSeconds: 10
  timeoutSeconds: 5
  failureThreshold: 6
readinessProbe:
  httpGet: {path: /readyz, port: metrics}
  periodSeconds: 5
  timeoutSeconds: 5
{{- end -}}
